"""The graph of single steps between all placements of a value, as arrays, and its prices.

A price is one complex number: picoseconds, and launches * 2^36 + bytes on the wire as imaginary
part. NumPy orders and minimises complex numbers by real and then imaginary part, and both are whole
numbers below 2^53, so sums and comparisons are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tscompile.ir.placement import Placement, Placements, Shard
from tscompile.search.costs import FREE, Collective, CostModel, Price
from tscompile.search.layout import Digits, MeshAxes, View, legal_placements
from tscompile.search.steps import Step, StepKind, single_changes

Prices = NDArray[np.complex128]
Indices = NDArray[np.int64]

_LAUNCH = 1 << 36
UNREACHABLE = complex(2.0**52, 0)


def encode(price: Price) -> complex:
    """The price as one number."""
    return complex(price.picoseconds, price.launches * _LAUNCH + price.wire_bytes)


def decode(value: complex) -> Price:
    """The price that `encode` gave."""
    launches, wire = divmod(int(value.imag), _LAUNCH)
    return Price(int(value.real), launches, wire)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What, besides the view's size, an edge's price depends on; equal ones share a price.

    `shards` cut the tile before the step; `fold` shards more (or fewer) cut it after. `lead_*` are
    the shards of the dims before the scattered and the gathered one.
    """

    step: Step
    shards: int
    permutes: tuple[bool, bool]
    leads: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StepGraph:
    """All legal placements of values with the same digits, and the steps between them.

    Edges are sorted by target; `starts` are the first edges of `targets`, the placements that any
    edge enters. `shape_of` points into `shapes`.
    """

    placements: tuple[Placements, ...]
    index: dict[Placements, int]
    shards: Indices
    source: Indices
    target: Indices
    shape_of: Indices
    shapes: tuple[_Shape, ...]

    def price(self, costs: CostModel, view: View) -> Prices:
        """The price of each edge."""
        each = np.array([encode(_price(costs, view, shape)) for shape in self.shapes])
        if not len(self.shapes):
            return np.zeros(0, np.complex128)
        return each[self.shape_of]


@lru_cache(maxsize=256)
def step_graph(axes: MeshAxes, digits: Digits) -> StepGraph:
    """The graph of values with these digits."""
    placements = legal_placements(axes, digits)
    return _Builder(axes, digits, placements).build()


class _Builder:
    """Enumerates edges for all placements of the untouched axes at once."""

    def __init__(self, axes: MeshAxes, digits: Digits, placements: tuple[Placements, ...]) -> None:
        self.axes, self.digits, self.placements = axes, digits, placements
        self.choices = tuple(
            tuple(dict.fromkeys(p[i] for p in placements)) for i in range(len(axes))
        )
        sizes = [len(c) for c in self.choices]
        self.radix = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
        shape = (len(placements), len(axes))
        cuts = [p.dim if isinstance(p, Shard) else -1 for row in placements for p in row]
        self.cut = np.array(cuts, np.int64).reshape(shape)
        self.sizes = np.array([axis.size for axis in axes], np.int64)

    def build(self) -> StepGraph:
        rows: list[NDArray[np.int64]] = []
        steps: list[Step] = []
        for chosen, source, target, step in single_changes(self.axes, self.choices):
            steps.append(step)
            rows.append(self._edges(len(steps) - 1, chosen, source, target, step))
        edges = np.concatenate(rows) if rows else np.zeros((0, 8), np.int64)
        edges = edges[np.argsort(edges[:, 1], kind="stable")]
        unique, shape_of = np.unique(edges[:, 2:], axis=0, return_inverse=True)
        return StepGraph(
            placements=self.placements,
            index={p: i for i, p in enumerate(self.placements)},
            shards=self._shards(np.arange(len(self.placements))),
            source=edges[:, 0],
            target=edges[:, 1],
            shape_of=shape_of.reshape(-1),
            shapes=tuple(_shape(steps, row.tolist()) for row in unique),
        )

    def _edges(
        self, number: int, chosen: tuple[int, ...], source: Placement, target: Placement, step: Step
    ) -> NDArray[np.int64]:
        """Columns: from, to, step, shards before, permutes (2), leading shards (2)."""
        position = {i: c.index(source) for i, c in enumerate(self.choices) if i in chosen}
        ranges = [
            (position[i],) if i in chosen else range(len(c)) for i, c in enumerate(self.choices)
        ]
        offsets = [
            np.fromiter(r, np.int64) * stride for r, stride in zip(ranges, self.radix, strict=True)
        ]
        origin = np.zeros(1, np.int64)
        for part in offsets:
            origin = (origin[:, None] + part[None, :]).reshape(-1)
        shift = sum((self.choices[i].index(target) - position[i]) * self.radix[i] for i in chosen)
        end = origin + shift
        columns = (
            origin,
            end,
            np.full_like(origin, number),
            self._shards(origin),
            self._permuted(chosen, step.scatter, origin),
            self._permuted(chosen, step.gather, origin),
            self._leads(step.scatter, origin),
            self._leads(step.gather, end),
        )
        return np.stack(columns, axis=1)

    def _shards(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(self.cut[rows] >= 0, self.sizes, 1).prod(axis=1)

    def _permuted(
        self, chosen: tuple[int, ...], dim: int | None, rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """1 where a digit of `dim` that stays whole is more significant than one that moves."""
        needed = np.zeros(len(rows), np.bool_)
        if dim is None:
            return needed.astype(np.int64)
        for i in range(min(chosen) + 1, len(self.axes)):
            if i not in chosen and self.axes[i].name in self.digits[dim]:
                needed |= self.cut[rows, i] != dim
        return needed.astype(np.int64)

    def _leads(self, dim: int | None, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if dim is None:
            return np.zeros(len(rows), np.int64)
        before = (self.cut[rows] >= 0) & (self.cut[rows] < dim)
        return np.where(before, self.sizes, 1).prod(axis=1)


def _shape(steps: list[Step], row: list[int]) -> _Shape:
    number, shards, before, behind, scatter, gather = row
    return _Shape(steps[number], shards, (bool(before), bool(behind)), (scatter, gather))


def _price(costs: CostModel, view: View, shape: _Shape) -> Price:
    """As `steps.step_price`, from what the edges of one shape share."""
    step, ranks = shape.step, 1
    for axis in costs.axes:
        if axis.name in step.axes:
            ranks *= axis.size
    before = view.total_bytes // shape.shards
    behind = before
    if step.kind in (StepKind.REDUCE_SCATTER, StepKind.SLICE):
        behind = before // ranks
    elif step.kind is StepKind.ALL_GATHER:
        behind = before * ranks
    if step.kind in (StepKind.SLICE, StepKind.MASK):
        price = costs.kernel(2 * behind)
    else:
        price = costs.collective(Collective(step.kind.value), step.axes, before)
    sides = ((step.scatter, before), (step.gather, behind))
    for (dim, size), permuted, lead in zip(sides, shape.permutes, shape.leads, strict=True):
        inner = dim is not None and step.kind is not StepKind.SLICE
        if inner and int(np.prod(view.shape[:dim], dtype=np.int64)) // lead > 1:
            price += costs.kernel(2 * size)
        price += costs.kernel(2 * size) if permuted else FREE
    return price


def all_edges(graph: StepGraph) -> list[tuple[Placements, Placements, Step]]:
    """The edges as placements, in order."""
    at = graph.placements
    return [
        (at[int(graph.source[e])], at[int(graph.target[e])], graph.shapes[int(shape)].step)
        for e, shape in enumerate(graph.shape_of)
    ]
