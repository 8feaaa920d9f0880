"""Reductions in the kernel of a norm: the collective, the addition of a residual, and the norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tscompile.cost.model import Collective, CostModel, Price
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tscompile.search.graph import Indices, Prices, combinations, encode, step_graph
from tscompile.search.layout import Digits, MeshAxes, View
from tscompile.search.program import Operation
from tscompile.search.strategies import Batch
from tscompile.search.tiles import distinct, tile_sizes

R, P, S0 = REPLICATE, PARTIAL, Shard(0)

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A collective in the norm's kernel: along its axes the summand, residual, sum and normed."""

    name: str
    along: tuple[Placement, Placement, Placement, Placement]
    wired: Callable[[CostModel, tuple[str, ...], int], Price | None]


def _reduce(costs: CostModel, axes: tuple[str, ...], held: int) -> Price | None:
    """In one shot where ranks read each other's memory; over a host's sockets as it is."""
    if costs.topology.links[0].direct:
        return costs.one_shot(axes, held)
    return costs.wired(Collective.ALL_REDUCE, axes, held)


def _scatter(costs: CostModel, axes: tuple[str, ...], held: int) -> Price:
    return costs.wired(Collective.REDUCE_SCATTER, axes, held)


def _back(parts: int) -> Callable[[CostModel, tuple[str, ...], int], Price]:
    """Scatter, and then gather as many values of that size again."""

    def wired(costs: CostModel, axes: tuple[str, ...], held: int) -> Price:
        ranks = 1
        for axis in costs.axes:
            ranks *= axis.size if axis.name in axes else 1
        gather = costs.wired(Collective.ALL_GATHER, axes, parts * held // ranks)
        return _scatter(costs, axes, held) + gather

    return wired


REDUCTIONS = (
    Reduction("all_reduce", (P, R, R, R), _reduce),
    Reduction("reduce_scatter", (P, S0, S0, S0), _scatter),
    Reduction("reduce_scatter+all_gather", (P, S0, S0, R), _back(1)),
    Reduction("reduce_scatter+all_gather_both", (P, S0, R, R), _back(2)),
)
"""The residual may be gathered together with what was normed (`both`)."""


def reduced(
    costs: CostModel,
    reduction: Reduction,
    first: Operation,
    norm: Operation,
    values: Mapping[str, View],
    summand: int,
) -> Batch:
    """One kernel for a reduction, the add (or identity, without residual), and the norm of its sum.

    `summand` says which input of `first` is due to be reduced.
    """
    core = _core(costs, reduction, values[first.outputs[0]])
    moved = core.tile * (len(first.inputs) + 2)
    requires = [core.places[1]] * len(first.inputs)
    requires[summand] = core.places[0]
    return Batch(
        f"{reduction.name}+{first.kind}+{norm.kind}",
        2,
        first.inputs,
        (*first.outputs, *norm.outputs),
        np.array(requires, np.int64),
        np.array(core.places[2:], np.int64),
        moved,
        np.zeros_like(moved),
        1,
        core.wires,
    )


@dataclass(frozen=True, slots=True)
class _Core:
    """A reduction over values of one view, a column a way to lay it out.

    Placement numbers of summand, residual, sum and normed; bytes of a tile as the residual has it,
    on which the add and norm work; what goes over the wire. As of any collective, what is moved
    for it is in its wires.
    """

    places: tuple[Indices, ...]
    tile: Indices
    wires: Prices


@lru_cache(maxsize=64)
def _core(costs: CostModel, reduction: Reduction, view: View) -> _Core:
    ways = _places(costs.axes, reduction, view.digits)
    wires, able = _wires(costs, reduction, view, ways)
    kept = tuple(row[able] for row in ways.places)
    return _Core(kept, tile_sizes(costs.axes, view, kept[1]), wires)


@dataclass(frozen=True, eq=False, slots=True)
class _Places:
    """Placement numbers of summand, residual, sum and normed, a column a way to reduce.

    `collectives` are distinct ones, over which axes, of a summand in how many shards; `same` tells
    which a column does.
    """

    places: tuple[Indices, ...]
    collectives: tuple[tuple[tuple[str, ...], int], ...]
    same: Indices


@lru_cache(maxsize=256)
def _places(axes: MeshAxes, reduction: Reduction, digits: Digits) -> _Places:
    graph = step_graph(axes, digits)
    words = [(R,) * 4, (S0,) * 4, reduction.along]
    legal = [
        [word for word in words if all(p in choices for p in word)] for choices in graph.choices
    ]
    grid = combinations([len(words) for words in legal])
    reduces = np.zeros(grid.shape, np.bool_)
    for i, choices in enumerate(legal):
        reduces[i] = np.array([word is reduction.along for word in choices])[grid[i]]
    kept = reduces.any(axis=0)
    if legal and reduction.along[1] == S0:
        whole = np.stack(
            [_is_whole(words, column) for words, column in zip(legal, grid, strict=True)]
        )
        kept &= ~_permuted(axes, digits, reduces, whole)
    rows: list[Indices] = []
    for k in range(4):
        number = np.zeros(grid.shape[1], np.int64)
        for i, choices in enumerate(legal):
            number += np.array([graph.part(i, word[k]) for word in choices])[grid[i]]
        rows.append(number[kept])
    reducing = reduces[:, kept].astype(np.int64)
    shards = graph.shards[rows[0]]
    which = [*((row, 2) for row in reducing), (shards, int(shards.max(initial=0)) + 1)]
    first, same = distinct(which)
    collectives = tuple(
        (tuple(a.name for a, on in zip(axes, reducing[:, i], strict=True) if on), int(shards[i]))
        for i in first.tolist()
    )
    return _Places(tuple(rows), collectives, same)


def _is_whole(words: Sequence[tuple[Placement, ...]], column: Indices) -> Flags:
    """Where the chosen word leaves rows whole along its axis."""
    return np.array([word == (R,) * 4 for word in words])[column]


def _permuted(axes: MeshAxes, digits: Digits, reduces: Flags, whole: Flags) -> Flags:
    """Where the rows that a rank keeps are no block: a digit that stays whole is more significant
    than one that is scattered.
    """
    lowest = reduces.argmax(axis=0)
    found = np.zeros(reduces.shape[1], np.bool_)
    for i, axis in enumerate(axes):
        if axis.name in digits[0]:
            found |= (i > lowest) & whole[i]
    return found


def _wires(
    costs: CostModel, reduction: Reduction, view: View, ways: _Places
) -> tuple[Prices, Indices]:
    """What the collective costs where there is one, and the columns where there is."""
    every = [reduction.wired(costs, a, view.total_bytes // n) for a, n in ways.collectives]
    able = np.array([price is not None for price in every], np.bool_)[ways.same]
    prices = [0j if price is None else encode(price) for price in every]
    return np.array(prices, np.complex128)[ways.same][able], np.flatnonzero(able)
