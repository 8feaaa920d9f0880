"""Placements that leave a rank the same tile, and columns that are alike, against plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random

import numpy as np
import pytest

from tscompile.ir.placement import PARTIAL
from tscompile.search.graph import step_graph
from tscompile.search.layout import tile_shape
from tscompile.search.tiles import distinct, due_tiles, tiles
from tsruntime.artifact.schema import Axis

AXES = (Axis("a", 2), Axis("b", 2), Axis("c", 3))
DIGITS = (("a", "b", "c"), ("a", "c"))


def test_placements_of_one_kind_have_tiles_of_one_shape() -> None:
    graph, kinds, due = step_graph(AXES, DIGITS), tiles(AXES, DIGITS), due_tiles(AXES, DIGITS)
    shapes: dict[int, set[object]] = {}
    summed: dict[int, set[object]] = {}
    for number, placements in enumerate(graph.placements):
        shape = tile_shape(AXES, (12, 6), placements)
        pairs = zip(AXES, placements, strict=True)
        ranks = prod(axis.size for axis, placement in pairs if placement == PARTIAL)
        shapes.setdefault(int(kinds.of[number]), set()).add(shape)
        summed.setdefault(int(due.of[number]), set()).add((shape, ranks))
    for found, count in ((shapes, kinds.count), (summed, due.count)):
        assert sorted(found) == list(range(count))
        assert all(len(alike) == 1 for alike in found.values())
        assert len({next(iter(alike)) for alike in found.values()}) == count


@pytest.mark.parametrize("bounds", [(3,), (2, 5, 4), (1 << 30, 3, 1 << 31, 7, 1 << 20)])
def test_distinct_columns_are_those_that_a_dict_tells_apart(bounds: Sequence[int]) -> None:
    random = Random(5)
    rows = [[random.choice((0, bound - 1, bound // 2)) for _ in range(60)] for bound in bounds]
    first, same = distinct([(np.array(r, np.int64), n) for r, n in zip(rows, bounds, strict=True)])
    columns = list(zip(*rows, strict=True))
    assert sorted(first.tolist()) == sorted(columns.index(one) for one in set(columns))
    assert [columns[first[number]] for number in same.tolist()] == columns
