"""A layer as the search sees it: values by number, options as arrays; equal layers are one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tscompile.cost.model import CostModel, Price
from tscompile.search.frontier import Frontier
from tscompile.search.fusions import LONGEST, batches_at
from tscompile.search.graph import Indices, Prices, decode
from tscompile.search.holdings import Stock
from tscompile.search.layout import View
from tscompile.search.policies import Limits
from tscompile.search.program import Operation, Program
from tscompile.search.reshard import Reshards
from tscompile.search.rules import rule_of
from tscompile.search.strategies import Batch, Rule, batch_of
from tscompile.search.ways import Ways, ways_of

Offers: TypeAlias = Callable[[Program, Sequence[Operation], Batch], Indices]
"""Which columns of a fused batch of some operations have a kernel."""


@dataclass(frozen=True, eq=False, slots=True)
class Choices:
    """A batch with its values by number and its prices."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    prices: Prices
    batch: Batch

    @property
    def span(self) -> int:
        """How many operations it takes."""
        return self.batch.span

    @property
    def requires(self) -> Indices:
        """Placement numbers, a row an input, a column an option."""
        return self.batch.requires

    @property
    def gives(self) -> Indices:
        """Placement numbers, a row an output, a column an option."""
        return self.batch.gives

    def price_of(self, option: int) -> Price:
        """One option's price."""
        return decode(complex(self.prices[option]))


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Operations between two cuts. Values are numbered: those live at entry first, then outputs.

    `live[p]` are the values needed at or after operation p, in order of their numbers, the last
    entry being what leaves the segment. `last[p]` maps those of them with a single use left to the
    placements that it may need. `explored` remembers what the segment made of a vector of states.
    """

    stocks: tuple[Stock, ...]
    stages: tuple[tuple[Choices, ...], ...]
    ways: tuple[tuple[Ways, ...], ...]
    live: tuple[tuple[int, ...], ...]
    last: tuple[Mapping[int, Indices], ...]
    explored: dict[object, list[Frontier]] = field(default_factory=dict[object, "list[Frontier]"])


@dataclass(frozen=True, slots=True)
class Cut:
    """Segment number `segment` of the compiled program starts at operation `start`."""

    segment: int
    start: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program as a sequence of distinct segments; `names` of a cut resolve value numbers."""

    program: Program
    segments: tuple[Segment, ...]
    sequence: tuple[Cut, ...]
    stocks: Mapping[View, Stock]


class Compiler:
    """Turns programs into segments; what depends on views alone is shared between calls."""

    def __init__(
        self,
        costs: CostModel,
        policy: Limits | None = None,
        *,
        fuse: bool = True,
        rules: Callable[[Operation], Rule] = rule_of,
        offers: Offers | None = None,
    ) -> None:
        self.costs = costs
        self._policy = policy
        self._fuse = fuse
        self._rules = rules
        self._offers = offers
        self._mode = ""
        self._stocks: dict[View, Stock] = {}
        self._batches: dict[object, Batch] = {}
        self._fused: dict[object, list[Batch]] = {}
        self._segments: dict[object, Segment] = {}
        self._kinds: dict[object, int] = {}
        self._kind_of: dict[int, tuple[Program, Operation, int]] = {}

    def sharing(
        self,
        policy: Limits | None,
        rules: Callable[[Operation], Rule],
        offers: Offers | None = None,
        mode: str = "",
    ) -> Compiler:
        """Another compiler at the same costs, under which what is alike is worked out once.

        Rules must give equal strategies and work to ops of equal views, attributes and detail, and
        offers equal ones in the same `mode`.
        """
        other = copy(self)
        other._policy, other._rules, other._offers, other._mode = policy, rules, offers, mode
        return other

    def compile_(self, program: Program) -> Compiled:
        """Cut the program into segments, equal ones once."""
        bounds = [0, *program.cuts, len(program.operations)]
        readers = program.readers()
        last = {value: max(found, default=-1) for value, found in readers.items()}
        live = list(program.given)
        segments: list[Segment] = []
        known: dict[object, int] = {}
        sequence: list[Cut] = []
        for start, end in itertools.pairwise(bounds):
            live = [value for value in live if last[value] >= start]
            given = [value for op in program.operations[start:end] for value in op.outputs]
            names = (*live, *given)
            key = self._signature(program, readers, names, start, end)
            if key not in known:
                known[key] = len(segments)
                if key not in self._segments:
                    self._segments[key] = self._segment(program, readers, names, start, end)
                segments.append(self._segments[key])
            sequence.append(Cut(known[key], start, names))
            live += given
        return Compiled(program, tuple(segments), tuple(sequence), self._stocks)

    def _signature(
        self,
        program: Program,
        readers: Mapping[str, Sequence[int]],
        names: tuple[str, ...],
        start: int,
        end: int,
    ) -> tuple[object, ...]:
        """Equal for segments that are the same but for names."""
        number = {name: i for i, name in enumerate(names)}
        operations = program.operations[start:end]
        wiring = tuple(
            (
                self._kind(program, op),
                tuple(number[v] for v in op.inputs),
                tuple(number[v] for v in op.outputs),
            )
            for op in operations
        )
        leaving = tuple(min(2, sum(r >= end for r in readers[name])) for name in names)
        limits = tuple(self._policy.signature(op) for op in operations) if self._policy else ()
        return (self._mode, wiring, leaving, limits, tuple(program.values[n] for n in names))

    def _kind(self, program: Program, operation: Operation) -> int:
        """A number that ops share whose options are the same."""
        known = self._kind_of.get(id(operation))
        if known is not None and known[0].values is program.values:
            return known[2]
        key = _alike(program, operation)
        kind = self._kinds.setdefault(key, len(self._kinds))
        self._kind_of[id(operation)] = program, operation, kind
        return kind

    def _segment(
        self,
        program: Program,
        readers: Mapping[str, Sequence[int]],
        names: tuple[str, ...],
        start: int,
        end: int,
    ) -> Segment:
        number = {name: i for i, name in enumerate(names)}
        defined = _definitions(program)
        live = tuple(
            tuple(
                i
                for i, name in enumerate(names)
                if defined[name] < p <= max(readers[name], default=-1)
            )
            for p in range(start, end + 1)
        )
        stages = tuple(
            tuple(self._choices(number, batch) for batch in stage)
            for stage in self._stages(program, readers, start, end)
        )
        stocks = tuple(self._stock(program.values[name]) for name in names)
        once = [
            [i for i in values if sum(r >= start + p for r in readers[names[i]]) == 1]
            for p, values in enumerate(live)
        ]
        ways, last = _ways(stages, stocks, live, once)
        return Segment(stocks, stages, ways, live, last)

    def _stages(
        self, program: Program, readers: Mapping[str, Sequence[int]], start: int, end: int
    ) -> list[list[Batch]]:
        operations = program.operations[start:end]
        single = [self._batch(program, op) for op in operations]

        def dead_after(position: int) -> frozenset[str]:
            inner = {v for op in operations for v in op.outputs}
            return frozenset(v for v in inner if max(readers[v], default=-1) < start + position)

        stages: list[list[Batch]] = []
        for position, batch in enumerate(single):
            found = [batch]
            if self._fuse:
                window = _Window(program, readers, operations[position:], start + position)
                key = (self._mode, self._offers is None, window.key(self._kind))
                if key not in self._fused:
                    fused = batches_at(
                        self.costs, operations, position, program.values, single, dead_after
                    )
                    offered = [self._offered(program, operations[position:], b) for b in fused]
                    self._fused[key] = window.numbered(offered)
                found += window.named(self._fused[key])
            admitted = [self._admitted(program, b) for b in found]
            stages.append([b for b in admitted if len(b)])
        return stages

    def _offered(self, program: Program, operations: Sequence[Operation], batch: Batch) -> Batch:
        if self._offers is None:
            return batch
        return batch.only(self._offers(program, operations[: batch.span], batch))

    def _admitted(self, program: Program, batch: Batch) -> Batch:
        if self._policy is None:
            return batch
        return batch.only(self._policy.columns(self.costs.axes, program, batch))

    def _batch(self, program: Program, operation: Operation) -> Batch:
        """The op's own strategies, worked out once for all that are alike."""
        key = _alike(program, operation)
        if key not in self._batches:
            rule = self._rules(operation)
            self._batches[key] = batch_of(self.costs, rule, operation, program.values)
        return replace(self._batches[key], inputs=operation.inputs, outputs=operation.outputs)

    def _stock(self, view: View) -> Stock:
        if view not in self._stocks:
            self._stocks[view] = Stock(Reshards(self.costs, view))
        return self._stocks[view]

    def _choices(self, number: Mapping[str, int], batch: Batch) -> Choices:
        return Choices(
            tuple(number[v] for v in batch.inputs),
            tuple(number[v] for v in batch.outputs),
            batch.prices(self.costs),
            batch,
        )


class _Window:
    """The ops that a fused kernel may take from a position on, their values by number."""

    def __init__(
        self,
        program: Program,
        readers: Mapping[str, Sequence[int]],
        operations: Sequence[Operation],
        start: int,
    ) -> None:
        self._program = program
        self._operations = operations[:LONGEST]
        names = (n for op in self._operations for n in (*op.inputs, *op.outputs))
        self._names = tuple(dict.fromkeys(names))
        self._last = tuple(
            max(-1, min(LONGEST, max(readers[v], default=-1) - start))
            for op in self._operations
            for v in op.outputs
        )

    def key(self, kind: Callable[[Program, Operation], int]) -> tuple[object, ...]:
        """Equal for windows that are the same but for names."""
        number = {name: i for i, name in enumerate(self._names)}
        wiring = tuple(
            (
                kind(self._program, op),
                tuple(number[v] for v in op.inputs),
                tuple(number[v] for v in op.outputs),
            )
            for op in self._operations
        )
        return (wiring, self._last)

    def numbered(self, batches: Sequence[Batch]) -> list[Batch]:
        """Batches with numbers in place of names."""
        return _renamed(batches, {name: str(i) for i, name in enumerate(self._names)})

    def named(self, batches: Sequence[Batch]) -> list[Batch]:
        """Numbered batches with this window's names."""
        return _renamed(batches, {str(i): name for i, name in enumerate(self._names)})


def _renamed(batches: Sequence[Batch], names: Mapping[str, str]) -> list[Batch]:
    return [
        replace(
            batch,
            inputs=tuple(names[v] for v in batch.inputs),
            outputs=tuple(names[v] for v in batch.outputs),
        )
        for batch in batches
    ]


def _definitions(program: Program) -> dict[str, int]:
    """For each value the position of the op that gives it; -1 for given ones."""
    defined = dict.fromkeys(program.given, -1)
    for position, operation in enumerate(program.operations):
        defined.update(dict.fromkeys(operation.outputs, position))
    return defined


def _alike(program: Program, operation: Operation) -> tuple[object, ...]:
    """What an op's options depend on."""
    views = tuple(program.values[v] for v in (*operation.inputs, *operation.outputs))
    bound = tuple((b.view, b.placements) for b in operation.bound)
    return (operation.kind, views, bound, operation.attributes, operation.detail)


def _ways(
    stages: Sequence[Sequence[Choices]],
    stocks: Sequence[Stock],
    live: Sequence[Sequence[int]],
    once: Sequence[Sequence[int]],
) -> tuple[tuple[tuple[Ways, ...], ...], tuple[Mapping[int, Indices], ...]]:
    """The ways of each stage, and what values that are read once more (`once`) may be needed as.

    From the end on, since the first depends on the second for what comes behind it.
    """
    ways: list[tuple[Ways, ...]] = []
    last: list[Mapping[int, Indices]] = []
    for position in reversed(range(len(live))):
        if position < len(stages):
            batches = [(c.batch, c.inputs, c.outputs, c.prices) for c in stages[position]]
            ways.insert(0, ways_of(batches, stocks, live[position:], [{}, *last]))
        last.insert(0, {value: _needs(ways, stocks, value) for value in once[position]})
    return tuple(ways), tuple(last)


def _needs(stages: Sequence[Sequence[Ways]], stocks: Sequence[Stock], value: int) -> Indices:
    """All placements in which any of the ways may read a value."""
    rows = [
        ways.requires[ways.inputs.index(value)]
        for stage in stages
        for ways in stage
        if value in ways.inputs
    ]
    if not rows:
        return np.arange(len(stocks[value].reshards.placements))
    return np.unique(np.concatenate(rows))
