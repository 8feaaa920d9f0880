"""A layer as the search sees it: values by number, options as arrays; equal layers are one."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tscompile.cost.model import CostModel, Price
from tscompile.search import _core
from tscompile.search.fusions import batches_at, reach
from tscompile.search.graph import Indices, Prices, decode
from tscompile.search.layout import View
from tscompile.search.ordering import Order, Wired
from tscompile.search.policies import Limits
from tscompile.search.program import Operation, Program
from tscompile.search.reshard import Reshards
from tscompile.search.strategies import Batch, Rule, batch_of

Offers: TypeAlias = Callable[[Program, Sequence[Operation], Batch], Indices]
"""Which columns of a fused batch of some operations have a kernel."""


@dataclass(frozen=True, eq=False, slots=True)
class Priced:
    """A batch and the price of each of its columns."""

    batch: Batch
    prices: Prices

    def named(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Priced:
        """The same of other values."""
        return Priced(self.batch.named(inputs, outputs), self.prices)


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

    def numbers(self) -> _core.Options:
        """All of it as the core takes it."""
        return _core.Options(
            self.span, self.inputs, self.outputs, self.requires, self.gives, self.prices
        )


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Operations between two cuts: what can be taken before each, and the core that explores it.

    The core takes the operations in another `order`.
    """

    stages: tuple[tuple[Choices, ...], ...]
    order: tuple[int, ...]
    core: _core.Segment


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
    reshards: Mapping[View, Reshards]


class Tables:
    """What compilers at the same costs share, so that what is alike is worked out once.

    Their rules must give equal strategies and work to ops of equal views, attributes and detail,
    and their offers equal ones in the same mode.
    """

    def __init__(self, costs: CostModel) -> None:
        self.costs = costs
        self.reshards: dict[View, Reshards] = {}
        self.batches: dict[int, Priced] = {}
        self.fused: dict[object, tuple[tuple[str, ...], list[Priced]]] = {}
        self.segments: dict[object, Segment] = {}
        self.kinds: dict[object, int] = {}
        self.kind_of: dict[int, tuple[Program, Operation, int]] = {}


class Compiler:
    """Turns programs into segments, by the rules of their ops.

    `policy` leaves out strategies, `offers` fused ones that no kernel runs (all are taken without,
    none where not `fuse`); `mode` is what the offers depend on beside the ops.
    """

    def __init__(
        self,
        tables: Tables,
        rules: Callable[[Operation], Rule],
        policy: Limits | None = None,
        *,
        fuse: bool = True,
        offers: Offers | None = None,
        mode: str = "",
    ) -> None:
        self.costs = tables.costs
        self._rules, self._policy, self._fuse = rules, policy, fuse
        self._offers, self._mode = offers, mode
        self._reshards, self._batches, self._fused = tables.reshards, tables.batches, tables.fused
        self._segments, self._kinds = tables.segments, tables.kinds
        self._kind_of = tables.kind_of

    def compile_(self, program: Program) -> Compiled:
        """Cut the program into segments, equal ones once."""
        bounds = [0, *program.cuts, len(program.operations)]
        wires = _Wires(program)
        live = list(program.given)
        segments: list[Segment] = []
        known: dict[object, int] = {}
        sequence: list[Cut] = []
        for start, end in itertools.pairwise(bounds):
            live = [value for value in live if wires.last[value] >= start]
            given = [value for op in program.operations[start:end] for value in op.outputs]
            names = (*live, *given)
            key = self._signature(program, wires, names, start, end)
            if key not in known:
                known[key] = len(segments)
                if key not in self._segments:
                    self._segments[key] = self._segment(program, wires, names, start, end)
                segments.append(self._segments[key])
            sequence.append(Cut(known[key], start, names))
            live += given
        return Compiled(program, tuple(segments), tuple(sequence), self._reshards)

    def _signature(
        self, program: Program, wires: _Wires, names: tuple[str, ...], start: int, end: int
    ) -> tuple[object, ...]:
        """Equal for segments that are the same but for names."""
        operations = program.operations[start:end]
        wiring = self._wiring(program, operations, names)
        leaving = tuple([min(2, wires.uses(name, end)) for name in names])
        limits = tuple(self._policy.signature(op) for op in operations) if self._policy else ()
        return (self._mode, wiring, leaving, limits, tuple(program.values[n] for n in names))

    def _wiring(
        self, program: Program, operations: Sequence[Operation], names: Sequence[str]
    ) -> tuple[object, ...]:
        """Equal for operations that are the same but for names."""
        number = {name: i for i, name in enumerate(names)}
        return tuple(
            (
                self._kind(program, op),
                tuple([number[v] for v in op.inputs]),
                tuple([number[v] for v in op.outputs]),
            )
            for op in operations
        )

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
        self, program: Program, wires: _Wires, names: tuple[str, ...], start: int, end: int
    ) -> Segment:
        number = {name: i for i, name in enumerate(names)}
        stages = tuple(
            tuple(_choices(number, batch) for batch in stage)
            for stage in self._stages(program, wires, start, end)
        )
        reshards = [self._reshards_of(program.values[name]) for name in names]
        order = Order(
            _wired(program.operations[start:end], number, stages),
            tuple([len(one.placements) for one in reshards]),
            tuple([min(2, wires.uses(name, end)) for name in names]),
        )
        positions = range(len(stages) + 1)
        core = _core.Segment(
            [one.stock for one in reshards],
            [order.live(position) for position in positions],
            [order.once(position) for position in positions],
            [[choices.numbers() for choices in stages[p]] for p in order.positions],
        )
        return Segment(stages, order.positions, core)

    def _stages(self, program: Program, wires: _Wires, start: int, end: int) -> list[list[Priced]]:
        operations = program.operations[start:end]
        single = [self._single(program, op) for op in operations]
        stages: list[list[Priced]] = []
        for position, batch in enumerate(single):
            found = [batch]
            span = reach(operations, position) if self._fuse else 0
            if span:
                window = operations[position : position + span]
                ahead = [one.batch for one in single[position : position + span]]
                found += self._fused_at(program, wires, window, ahead, start + position)
            admitted = [self._admitted(program, one) for one in found]
            stages.append([one for one in admitted if len(one.prices)])
        return stages

    def _fused_at(
        self,
        program: Program,
        wires: _Wires,
        window: Sequence[Operation],
        single: Sequence[Batch],
        start: int,
    ) -> list[Priced]:
        """The fused strategies of what begins a window, worked out once for all that are alike."""
        names = tuple(dict.fromkeys(n for op in window for n in (*op.inputs, *op.outputs)))
        given = [name for op in window for name in op.outputs]
        last = {name: max(-1, min(len(window), wires.last[name] - start)) for name in given}
        wiring = self._wiring(program, window, names)
        key = (self._mode, self._offers is None, wiring, tuple(last.values()))
        if key not in self._fused:
            batches = batches_at(self.costs, window, program.values, single, last)
            offered = [self._offered(program, window, batch) for batch in batches]
            self._fused[key] = names, [self._priced(batch) for batch in offered]
        others, found = self._fused[key]
        named = dict(zip(others, names, strict=True))
        return [
            one.named(
                tuple([named[v] for v in one.batch.inputs]),
                tuple([named[v] for v in one.batch.outputs]),
            )
            for one in found
        ]

    def _offered(self, program: Program, operations: Sequence[Operation], batch: Batch) -> Batch:
        if self._offers is None:
            return batch
        return batch.only(self._offers(program, operations[: batch.span], batch))

    def _admitted(self, program: Program, priced: Priced) -> Priced:
        if self._policy is None:
            return priced
        columns = self._policy.columns(self.costs.axes, program, priced.batch)
        return Priced(priced.batch.only(columns), priced.prices[columns])

    def _single(self, program: Program, operation: Operation) -> Priced:
        """The op's own strategies, worked out once for all that are alike."""
        kind = self._kind(program, operation)
        if kind not in self._batches:
            rule = self._rules(operation)
            batch = batch_of(self.costs, rule, operation, program.values)
            self._batches[kind] = self._priced(batch)
        return self._batches[kind].named(operation.inputs, operation.outputs)

    def _priced(self, batch: Batch) -> Priced:
        return Priced(batch, batch.prices(self.costs))

    def _reshards_of(self, view: View) -> Reshards:
        if view not in self._reshards:
            self._reshards[view] = Reshards(self.costs, view)
        return self._reshards[view]


class _Wires:
    """Where the values of a program are read: positions of operations, -1 where nobody does."""

    def __init__(self, program: Program) -> None:
        self._readers = program.readers()
        self.last = {value: max(found, default=-1) for value, found in self._readers.items()}

    def uses(self, value: str, start: int) -> int:
        """How often a value is read from `start` on."""
        readers = self._readers[value]
        return len(readers) - bisect_left(readers, start)


def _wired(
    operations: Sequence[Operation],
    number: Mapping[str, int],
    stages: Sequence[Sequence[Choices]],
) -> tuple[Wired, ...]:
    """Operations by the values' numbers, with what all that can be taken needs and joins."""
    needs: list[dict[int, set[int]]] = [{number[v]: set() for v in op.inputs} for op in operations]
    joined: set[int] = set()
    for start, stage in enumerate(stages):
        for choices in stage:
            taken = range(start, start + choices.span)
            joined.update(taken[1:])
            for value, row in zip(choices.inputs, choices.requires, strict=True):
                for position in taken:
                    if value in needs[position]:
                        needs[position][value].update(row.tolist())
    return tuple(
        Wired(
            tuple(needs[position]),
            tuple([number[v] for v in op.outputs]),
            tuple(map(len, needs[position].values())),
            sum(len(choices.prices) for choices in stages[position]),
            position in joined,
        )
        for position, op in enumerate(operations)
    )


def _choices(number: Mapping[str, int], priced: Priced) -> Choices:
    return Choices(
        tuple([number[v] for v in priced.batch.inputs]),
        tuple([number[v] for v in priced.batch.outputs]),
        priced.prices,
        priced.batch,
    )


def _alike(program: Program, operation: Operation) -> tuple[object, ...]:
    """What an op's options depend on."""
    views = tuple(program.values[v] for v in (*operation.inputs, *operation.outputs))
    bound = tuple((b.view, b.placements) for b in operation.bound)
    return (operation.kind, views, bound, operation.attributes, operation.detail)
