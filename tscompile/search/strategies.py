"""What a rule says of an op along one axis, and the joint strategies over all axes with prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from tscompile.cost.model import FREE, CostModel, Price
from tscompile.ir.errors import NoStrategyError
from tscompile.ir.placement import Placement, Placements, Shard
from tscompile.search.graph import Indices, Prices, StepGraph, combinations, encode, step_graph
from tscompile.search.layout import Digits, MeshAxes, View, tile_bytes, tile_shape
from tscompile.search.program import Operation
from tscompile.search.tiles import distinct, tiles

DEFERRED = "deferred"
"""Tag of partial sums that are added before they are reduced."""


def deferral(costs: CostModel) -> Price:
    """What adding partial sums before they are reduced must save: the time of a launch."""
    return Price(costs.topology.launch + 1)


@dataclass(frozen=True, slots=True)
class AxisStrategy:
    """Placements along one axis under which each rank can run the op on its own tiles.

    `bound` speaks of the bound operands. `tag` names a way that costs differently (`all_to_all`).
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    bound: tuple[Placement, ...] = ()
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What one rank does: bytes moved, operations, and what it pays beside its one kernel.

    Work without launch is a view and free.
    """

    moved: int
    flops: int = 0
    launches: int = 1
    extra: Price = FREE


@dataclass(frozen=True, slots=True)
class Setting:
    """An op under joint placements, as its rule prices it.

    Operands are counted inputs first, then outputs, then bound ones. A rule may look at the sizes
    of tiles and at tags, not at which axes cut a tile.
    """

    costs: CostModel
    operation: Operation
    views: tuple[View, ...]
    placements: tuple[Placements, ...]
    tags: tuple[str, ...]

    @property
    def axes(self) -> MeshAxes:
        """The mesh."""
        return self.costs.axes

    def shape(self, operand: int) -> tuple[int, ...]:
        """One rank's tile of an operand."""
        return tile_shape(self.axes, self.views[operand].shape, self.placements[operand])

    def bytes_(self, operand: int) -> int:
        """Bytes of that tile."""
        return tile_bytes(self.axes, self.views[operand], self.placements[operand])

    def total(self) -> int:
        """Bytes of all tiles: every operand read or written once."""
        return sum(self.bytes_(i) for i in range(len(self.views)))

    def tagged(self, tag: str) -> tuple[str, ...]:
        """The axes that go the way `tag`."""
        return tuple(a.name for a, t in zip(self.axes, self.tags, strict=True) if t == tag)


@dataclass(frozen=True, slots=True)
class Rule:
    """One op: its strategies along an axis (the second argument), and their work."""

    kind: str
    along: Callable[[Operation, str], tuple[AxisStrategy, ...]]
    work: Callable[[Setting], Work]


@dataclass(frozen=True, slots=True)
class Batch:
    """The joint strategies of `span` operations that one kernel does, one a column.

    Rows of `requires` and `gives` are the values that enter and leave, as placement numbers of
    their step graphs; the rest is `Work` in columns. `notes` say which axes go a tagged way.
    """

    kind: str
    span: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    requires: Indices
    gives: Indices
    moved: Indices
    flops: Indices
    launches: int
    extra: Prices
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.moved)

    def prices(self, costs: CostModel) -> Prices:
        """The price of each."""
        if not self.launches:
            return self.extra
        kernel = costs.kernels(self.moved, self.flops)
        return kernel + encode(Price(0, self.launches)) + self.extra

    def named(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Batch:
        """The same of other values."""
        return Batch(
            self.kind,
            self.span,
            inputs,
            outputs,
            self.requires,
            self.gives,
            self.moved,
            self.flops,
            self.launches,
            self.extra,
            self.notes,
        )

    def places(self) -> dict[str, Indices]:
        """The placement numbers of each value that enters or leaves."""
        rows = [*zip(self.inputs, self.requires, strict=True)]
        return dict([*rows, *zip(self.outputs, self.gives, strict=True)])

    def only(self, kept: Sequence[int] | Indices) -> Batch:
        """Some of the columns."""
        columns = np.asarray(kept, np.int64)
        picked: list[int] = columns.tolist()
        return Batch(
            self.kind,
            self.span,
            self.inputs,
            self.outputs,
            self.requires[:, columns],
            self.gives[:, columns],
            self.moved[columns],
            self.flops[columns],
            self.launches,
            self.extra[columns],
            tuple(self.notes[i] for i in picked) if self.notes else (),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Joint:
    """The joint strategies of an op over all axes, a column each, whatever the operands' sizes.

    `requires` and `gives` are placement numbers. `samples` are the distinct ways to cut operands
    and to go, by the first column of each: placements of inputs and outputs, and tags. `same` is
    the sample that a column costs as much as.
    """

    requires: Indices
    gives: Indices
    samples: tuple[tuple[tuple[Placements, ...], tuple[str, ...]], ...]
    same: Indices
    notes: tuple[str, ...]


def batch_of(
    costs: CostModel, rule: Rule, operation: Operation, values: Mapping[str, View]
) -> Batch:
    """Every legal joint strategy of an op. Raises NoStrategyError where there is none."""
    views = tuple(values[name] for name in (*operation.inputs, *operation.outputs))
    digits = tuple(view.digits for view in views)
    per_axis = _per_axis(costs, rule, operation, digits)
    joint = _joint(costs.axes, digits, len(operation.inputs), per_axis)
    everything = (*views, *(bound.view for bound in operation.bound))
    fixed = tuple(bound.placements for bound in operation.bound)
    works = [
        rule.work(Setting(costs, operation, everything, (*placed, *fixed), tags))
        for placed, tags in joint.samples
    ]
    return Batch(
        operation.kind,
        1,
        operation.inputs,
        operation.outputs,
        joint.requires,
        joint.gives,
        np.array([work.moved for work in works], np.int64)[joint.same],
        np.array([work.flops for work in works], np.int64)[joint.same],
        works[0].launches,
        np.array([encode(work.extra) for work in works], np.complex128)[joint.same],
        joint.notes,
    )


PerAxis: TypeAlias = tuple[tuple[AxisStrategy, ...], ...]
"""For each axis the strategies along it."""


@lru_cache(maxsize=1024)
def _joint(axes: MeshAxes, digits: tuple[Digits, ...], inputs: int, per_axis: PerAxis) -> Joint:
    """The joint strategies of an op whose `inputs` first operands enter."""
    graphs = [step_graph(axes, each) for each in digits]
    grid = combinations([len(strategies) for strategies in per_axis])
    numbers = [_numbers(graph, per_axis, grid, o) for o, graph in enumerate(graphs)]
    tags, tag_of = _tags(per_axis, grid)
    shapes = [tiles(axes, each) for each in digits]
    rows = [(tile.of[row], tile.count) for tile, row in zip(shapes, numbers, strict=True)]
    first, same = distinct([(tag_of, len(tags)), *rows])
    samples = tuple(
        (
            tuple(g.placements[int(row[i])] for g, row in zip(graphs, numbers, strict=True)),
            tags[int(tag_of[i])],
        )
        for i in first.tolist()
    )
    notes = [_note(axes, tag) for tag in tags]
    noted: list[int] = tag_of.tolist() if any(notes) else []
    columns = len(same)
    return Joint(
        np.array(numbers[:inputs], np.int64).reshape(inputs, columns),
        np.array(numbers[inputs:], np.int64).reshape(len(digits) - inputs, columns),
        samples,
        same,
        tuple(notes[t] for t in noted),
    )


def _per_axis(
    costs: CostModel, rule: Rule, operation: Operation, digits: tuple[Digits, ...]
) -> PerAxis:
    """The strategies along each axis that fit the bound operands and the values' digits."""
    found: list[tuple[AxisStrategy, ...]] = []
    for i, axis in enumerate(costs.axes):
        bound = tuple(operand.placements[i] for operand in operation.bound)
        cut = [[d for d, names in enumerate(each) if axis.name in names] for each in digits]
        fitting = tuple(
            strategy
            for strategy in rule.along(operation, axis.name)
            if strategy.bound == bound
            and all(
                not isinstance(placement, Shard) or placement.dim in dims
                for placement, dims in zip((*strategy.inputs, *strategy.outputs), cut, strict=True)
            )
        )
        if not fitting:
            raise NoStrategyError(
                f"no strategy of {operation.kind} on axis {axis.name} fits its operands "
                + ", ".join(f"{b.name} {b.placements[i]}" for b in operation.bound),
                remedy="annotate the weight so that a strategy of the op allows it",
                where=operation.name,
            )
        found.append(fitting)
    return tuple(found)


def _numbers(
    graph: StepGraph, per_axis: Sequence[Sequence[AxisStrategy]], grid: Indices, operand: int
) -> Indices:
    """The placement number of an input or output in each joint strategy."""
    total = np.zeros(grid.shape[1], np.int64)
    for i, strategies in enumerate(per_axis):
        parts = [graph.part(i, (*s.inputs, *s.outputs)[operand]) for s in strategies]
        total += np.array(parts, np.int64)[grid[i]]
    return total


def _tags(
    per_axis: Sequence[Sequence[AxisStrategy]], grid: Indices
) -> tuple[list[tuple[str, ...]], Indices]:
    """The distinct tags along all axes, and which of them each joint strategy has."""
    names = sorted({s.tag for strategies in per_axis for s in strategies})
    code = np.zeros(grid.shape[1], np.int64)
    for i, strategies in enumerate(per_axis):
        digit = np.array([names.index(s.tag) for s in strategies], np.int64)
        code = code * len(names) + digit[grid[i]]
    distinct, of = np.unique(code, return_inverse=True)
    tags: list[tuple[str, ...]] = []
    values: list[int] = distinct.tolist()
    for value in values:
        weights: list[int] = [len(names) ** i for i in reversed(range(len(per_axis)))]
        tags.append(tuple(names[value // weight % len(names)] for weight in weights))
    return tags, of.reshape(-1)


def _note(axes: MeshAxes, tags: tuple[str, ...]) -> str:
    words = [
        f"{tag}[{','.join(a.name for a, t in zip(axes, tags, strict=True) if t == tag)}]"
        for tag in sorted(set(tags) - {""})
    ]
    return " ".join(words)
