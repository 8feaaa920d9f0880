"""Which placements of a value leave a rank the same tile: what is priced or looked up once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tscompile.ir.placement import PARTIAL
from tscompile.search.graph import Indices, StepGraph, step_graph
from tscompile.search.layout import Digits, MeshAxes, View

_MOST = 1 << 62
"""What numbers of 64 bits tell apart."""


@dataclass(frozen=True, eq=False, slots=True)
class Tiles:
    """Of each placement, by number, which of `count` kinds it is."""

    of: Indices
    count: int


@lru_cache(maxsize=512)
def tiles(axes: MeshAxes, digits: Digits) -> Tiles:
    """Placements of values with these digits by the shape of their tiles."""
    return _sorted_by(step_graph(axes, digits).cuts)


@lru_cache(maxsize=512)
def due_tiles(axes: MeshAxes, digits: Digits) -> Tiles:
    """The same, apart by over how many ranks they are due to be reduced."""
    graph = step_graph(axes, digits)
    return _sorted_by(np.column_stack([graph.cuts, _due(axes, graph)]))


def tile_sizes(axes: MeshAxes, view: View, numbers: Indices) -> Indices:
    """Bytes of one rank's tile in each of these placements."""
    return view.total_bytes // step_graph(axes, view.digits).shards[numbers]


def distinct(columns: Sequence[tuple[Indices, int]]) -> tuple[Indices, Indices]:
    """The first column of each distinct combination, and which of these each column is.

    Rows come with a bound that their numbers are below.
    """
    code, bound = np.zeros_like(columns[0][0]), 1
    for row, count in columns:
        if bound * count > _MOST:
            numbers, code = np.unique(code, return_inverse=True)
            bound = len(numbers)
        code, bound = code * count + row, bound * count
    _, first, same = np.unique(code, return_index=True, return_inverse=True)
    return first, same.reshape(-1)


def _sorted_by(keys: Indices) -> Tiles:
    kinds, of = np.unique(keys, axis=0, return_inverse=True)
    return Tiles(of.reshape(-1), len(kinds))


def _due(axes: MeshAxes, graph: StepGraph) -> Indices:
    """Over how many ranks each placement is due to be reduced."""
    ranks = np.ones(len(graph.placements), np.int64)
    numbers = np.arange(len(graph.placements))
    for axis, choices, stride in zip(axes, graph.choices, graph.strides, strict=True):
        partial = np.array([choice == PARTIAL for choice in choices], np.bool_)
        ranks *= np.where(partial[numbers // stride % len(choices)], axis.size, 1)
    return ranks
