"""The graph of single steps between all placements of a value, as arrays, and its prices.

A price is one complex number: picoseconds, and launches * 2^43 + bytes on the wire as imaginary
part. NumPy orders and minimises complex numbers by real and then imaginary part, and both are whole
numbers below 2^53, so sums and comparisons are exact for what one segment may cost: 1,000 launches,
8 TB, two hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from tscompile.cost.model import Collective, CostModel, Price, Wires
from tscompile.ir.placement import Placement, Placements, Shard
from tscompile.search.layout import Digits, MeshAxes, View, legal_placements
from tscompile.search.steps import Step, StepKind, single_changes

Prices = NDArray[np.complex128]
Times = NDArray[np.float64]
"""Picoseconds alone."""

Indices = NDArray[np.int64]

_LAUNCH = 1 << 43


def encode(price: Price) -> complex:
    """The price as one number."""
    return complex(price.picoseconds, price.launches * _LAUNCH + price.wire_bytes)


def decode(value: complex) -> Price:
    """The price that `encode` gave."""
    launches, wire = divmod(int(value.imag), _LAUNCH)
    return Price(int(value.real), launches, wire)


@dataclass(frozen=True, eq=False, slots=True)
class StepGraph:
    """All legal placements of values with the same digits, and the steps between them.

    A placement's number is the sum over the axes of `strides` times its place in `choices`.
    `cuts[p, d]` is into how many parts placement p cuts dim d, `shards` their product. Edges go
    from `source` to `target` by `steps[step_of]`; `dims` are their scattered and gathered dim (-1
    for none), `permuted` tells if a local permute goes with it, `leads` into how many parts the
    dims before it are cut. `collectives` are distinct ones: what, over which axes, and then of a
    value in how many shards; `collective_of` tells which an edge is, -1 for a local one.
    """

    placements: tuple[Placements, ...]
    index: dict[Placements, int]
    choices: tuple[tuple[Placement, ...], ...]
    strides: tuple[int, ...]
    cuts: Indices
    shards: Indices
    steps: tuple[Step, ...]
    source: Indices
    target: Indices
    step_of: Indices
    dims: Indices
    permuted: Indices
    leads: Indices
    collectives: tuple[tuple[Collective, tuple[str, ...]], ...]
    collective_shards: Indices
    collective_of: Indices

    def part(self, axis: int, placement: Placement) -> int:
        """What `placement` on an axis adds to a number; ValueError where it is not legal."""
        return self.choices[axis].index(placement) * self.strides[axis]

    def step(self, edge: int) -> Step:
        """An edge's step."""
        return self.steps[int(self.step_of[edge])]

    def price(self, costs: CostModel, view: View) -> Prices:
        """The price of each edge, as `steps.step_price` has it."""
        copies = _copied(costs, view.total_bytes // self.shards)
        copied = copies[self.source], copies[self.target]
        time, sent = _wires(costs, self)(view.total_bytes // self.collective_shards)
        collectives = time + costs.topology.launch + 1j * (sent + _LAUNCH)
        exchanged = self.collective_of >= 0
        price: Prices = np.append(collectives, 0)[self.collective_of]
        price += np.where(exchanged, 0, copied[1])
        leading = np.array([prod(view.shape[:d]) for d in range(len(view.shape))] + [1])
        for side, copy in enumerate(copied):
            scattered = leading[self.dims[:, side]] // self.leads[:, side] > 1
            price += (self.permuted[:, side] + (exchanged & scattered)) * copy
        return price


def _copied(costs: CostModel, size: Indices) -> Prices:
    """A local copy of `size` bytes."""
    price: Prices = costs.kernels(2 * size, np.zeros_like(size)).astype(np.complex128)
    return price + encode(Price(0, 1))


def combinations(counts: Sequence[int]) -> Indices:
    """Every choice of one of `counts[i]` for each i: a row each i, a column each choice."""
    if not counts:
        return np.zeros((0, 1), np.int64)
    return np.indices(counts).reshape(len(counts), -1)


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
        edges = np.concatenate([np.zeros((0, 7), np.int64), *rows])
        edges = edges[np.argsort(edges[:, 1], kind="stable")]
        shards = self._shards(np.arange(len(self.placements)))
        kinds, parts, which = _collectives(steps, edges[:, 2], shards[edges[:, 0]])
        dims = [[-1 if d is None else d for d in (s.scatter, s.gather)] for s in steps]
        return StepGraph(
            placements=self.placements,
            index={p: i for i, p in enumerate(self.placements)},
            choices=self.choices,
            strides=tuple(self.radix),
            cuts=self._cuts(),
            shards=shards,
            steps=tuple(steps),
            source=edges[:, 0],
            target=edges[:, 1],
            step_of=edges[:, 2],
            dims=np.array(dims, np.int64).reshape(-1, 2)[edges[:, 2]],
            permuted=edges[:, 3:5],
            leads=edges[:, 5:7],
            collectives=kinds,
            collective_shards=parts,
            collective_of=which,
        )

    def _edges(
        self, number: int, chosen: tuple[int, ...], source: Placement, target: Placement, step: Step
    ) -> NDArray[np.int64]:
        """Columns: from, to, step, permutes (2), leading shards (2)."""
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
            self._permuted(chosen, step.scatter, origin),
            self._permuted(chosen, step.gather, origin),
            self._leads(step.scatter, origin),
            self._leads(step.gather, end),
        )
        return np.stack(columns, axis=1)

    def _cuts(self) -> Indices:
        columns = [
            np.where(self.cut == dim, self.sizes, 1).prod(axis=1) for dim in range(len(self.digits))
        ]
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
            return np.ones(len(rows), np.int64)
        before = (self.cut[rows] >= 0) & (self.cut[rows] < dim)
        return np.where(before, self.sizes, 1).prod(axis=1)


def _collectives(
    steps: Sequence[Step], step_of: Indices, shards: Indices
) -> tuple[tuple[tuple[Collective, tuple[str, ...]], ...], Indices, Indices]:
    """The distinct collectives of edges from placements in so many `shards`, and each edge's."""
    number: dict[tuple[Collective, tuple[str, ...], int], int] = {}
    keys: Indices = step_of * (int(shards.max(initial=0)) + 1) + shards
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    which = [-1] * len(first)
    for i, edge in enumerate(first.tolist()):
        step = steps[int(step_of[edge])]
        if step.kind not in (StepKind.SLICE, StepKind.MASK):
            one = (Collective(step.kind.value), step.axes, int(shards[edge]))
            which[i] = number.setdefault(one, len(number))
    parts = np.array([count for _, _, count in number], np.int64)
    return (
        tuple((kind, axes) for kind, axes, _ in number),
        parts,
        np.array(which, np.int64)[same.reshape(-1)],
    )


@lru_cache(maxsize=256)
def _wires(costs: CostModel, graph: StepGraph) -> Wires:
    return costs.wires(graph.collectives)


def all_edges(graph: StepGraph) -> list[tuple[Placements, Placements, Step]]:
    """The edges as placements, in order."""
    at = graph.placements
    pairs: list[list[int]] = np.stack([graph.source, graph.target], axis=1).tolist()
    return [(at[s], at[t], graph.step(edge)) for edge, (s, t) in enumerate(pairs)]
