"""What a program would cost if one op were done otherwise: the search again, without its choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tscompile.cost.model import Price
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.errors import NoStrategyError
from tscompile.ir.repeats import first_copies, numbers_of, renumbered
from tscompile.search.drafts import Seen, Solved, read, solved
from tscompile.search.graph import Indices, step_graph
from tscompile.search.layout import MeshAxes
from tscompile.search.policies import Limits, PolicyName
from tscompile.search.program import Operation, Program
from tscompile.search.segment import Tables
from tscompile.search.solution import Option, Run
from tscompile.search.strategies import Batch

_LAYER = re.compile(r"\blayers\.\d+\b")


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy of the ops from one on, in all layers that are alike; `module` asked for them.

    `runner_up` is the cheapest run of the program without it, and `instead` what does the first op
    there; both None where nothing else can do it.
    """

    module: str
    layers: tuple[int, ...]
    run: Run
    runner_up: Price | None
    instead: Option | None


@dataclass(frozen=True, slots=True)
class Excluding:
    """A policy's limits, and one more: not `option` for the ops of `values` in any layer."""

    policy: Limits | None
    values: tuple[str, ...]
    option: Option

    def columns(self, axes: MeshAxes, program: Program, batch: Batch) -> Indices:
        """The strategies of a batch that are left."""
        kept = np.arange(len(batch))
        if self.policy is not None:
            kept = self.policy.columns(axes, program, batch)
        if (batch.kind, _values(batch)) != (self.option.kind, self.values):
            return kept
        chosen = np.ones(len(batch), np.bool_)
        wanted = (*self.option.requires, *self.option.gives)
        rows = (*batch.requires, *batch.gives)
        for name, row, placements in zip(
            (*batch.inputs, *batch.outputs), rows, wanted, strict=True
        ):
            graph = step_graph(axes, program.values[name].digits)
            chosen &= row == graph.index[placements]
        if batch.notes:
            chosen &= np.array([note == self.option.note for note in batch.notes], np.bool_)
        return kept[~chosen[kept]]

    def signature(self, operation: Operation) -> tuple[object, ...]:
        """What it says of an op, for telling layers apart."""
        limits = () if self.policy is None else self.policy.signature(operation)
        if self.values[0] in _anywhere((*operation.inputs, *operation.outputs)):
            return (*limits, self.values, self.option)
        return limits


def choices(
    draft: Draft, program: DraftProgram, tables: Tables, policy: PolicyName
) -> tuple[Solved, list[Choice]]:
    """A program's cheapest run, and each distinct choice of it with its runner-up.

    Of a folded draft's, which names and prices are the whole model's. Raises UnlikeLayersError
    where layers that stand for several are not best done alike, in the run or in a runner-up.
    """
    seen = read(draft, program)
    best = solved(draft, seen, tables, policy)
    found: list[Choice] = []
    for runs in _alike(best):
        run = runs[0]
        other = _without(draft, seen, tables, policy, run)
        node = best.reading.nodes.get(best.program.operations[run.position].name)
        layers = tuple(sorted(_layers(draft, runs)))
        instead = None if other is None else _doing(other, run)
        price = None if other is None else other.solution.price
        module = renumbered(node.module, first_copies(draft.repeats)) if node else ""
        found.append(Choice(module, layers, run, price, instead))
    return best, found


def _without(
    draft: Draft,
    seen: Seen,
    tables: Tables,
    policy: PolicyName,
    run: Run,
) -> Solved | None:
    values = _values(run)
    try:
        return solved(
            draft, seen, tables, policy, lambda limits: Excluding(limits, values, run.option)
        )
    except NoStrategyError:
        return None


def _alike(best: Solved) -> list[list[Run]]:
    """The runs, those that do the same in different layers together."""
    groups: dict[object, list[Run]] = {}
    for action in best.solution.actions:
        if isinstance(action, Run) and action.option.kind != "output":
            groups.setdefault((_values(action), action.option), []).append(action)
    return list(groups.values())


def _doing(other: Solved, run: Run) -> Option | None:
    """What does the first op of `run` in another solution."""
    for action in other.solution.actions:
        if isinstance(action, Run) and 0 <= run.position - action.position < action.span:
            return action.option
    return None


def _values(run: Run | Batch) -> tuple[str, ...]:
    """What names a run, in any layer: what it gives, or what it writes into a cache."""
    return _anywhere(run.outputs or run.inputs)


def _anywhere(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_LAYER.sub("layers.*", name) for name in names)


def _layers(draft: Draft, runs: Iterable[Run]) -> set[int]:
    """The model's layers, of which the draft's stand for several, that the runs' values are of."""
    names = (name for run in runs for name in run.outputs or run.inputs)
    found = (m[0] for name in names for m in _LAYER.finditer(name))
    folded = {int(layer.partition(".")[2]) for layer in found}
    return {number for layer in folded for number in numbers_of(draft.repeats, layer)}
