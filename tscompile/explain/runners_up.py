"""What a program would cost if one op were done otherwise: the search again, without its choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tscompile.cost.model import Price
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.errors import NoStrategyError
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
    """A policy's limits, and one more: not `option` for what gives `outputs` in any layer."""

    policy: Limits | None
    outputs: tuple[str, ...]
    option: Option

    def columns(self, axes: MeshAxes, program: Program, batch: Batch) -> Indices:
        """The strategies of a batch that are left."""
        kept = np.arange(len(batch))
        if self.policy is not None:
            kept = self.policy.columns(axes, program, batch)
        if (batch.kind, _anywhere(batch.outputs)) != (self.option.kind, self.outputs):
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
        if self.outputs[0] in _anywhere(operation.outputs):
            return (*limits, self.outputs, self.option)
        return limits


def choices(
    draft: Draft, program: DraftProgram, tables: Tables, policy: PolicyName
) -> tuple[Solved, list[Choice]]:
    """A program's cheapest run, and each distinct choice of it with its runner-up."""
    seen = read(draft, program)
    best = solved(draft, seen, tables, policy)
    found: list[Choice] = []
    for runs in _alike(best):
        run = runs[0]
        other = _without(draft, seen, tables, policy, run)
        node = best.reading.nodes.get(best.program.operations[run.position].name)
        layers = tuple(sorted({layer for r in runs for layer in _layers(r.outputs)}))
        instead = None if other is None else _doing(other, run)
        price = None if other is None else other.solution.price
        found.append(Choice(node.module if node else "", layers, run, price, instead))
    return best, found


def _without(
    draft: Draft,
    seen: Seen,
    tables: Tables,
    policy: PolicyName,
    run: Run,
) -> Solved | None:
    outputs = _anywhere(run.outputs)
    try:
        return solved(
            draft, seen, tables, policy, lambda limits: Excluding(limits, outputs, run.option)
        )
    except NoStrategyError:
        return None


def _alike(best: Solved) -> list[list[Run]]:
    """The runs, those that do the same in different layers together."""
    groups: dict[object, list[Run]] = {}
    for action in best.solution.actions:
        if isinstance(action, Run) and action.option.kind != "output":
            groups.setdefault((_anywhere(action.outputs), action.option), []).append(action)
    return list(groups.values())


def _doing(other: Solved, run: Run) -> Option | None:
    """What does the first op of `run` in another solution."""
    for action in other.solution.actions:
        if isinstance(action, Run) and 0 <= run.position - action.position < action.span:
            return action.option
    return None


def _anywhere(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_LAYER.sub("layers.*", name) for name in names)


def _layers(names: Sequence[str]) -> list[int]:
    return [int(m[0].partition(".")[2]) for name in names for m in _LAYER.finditer(name)]
