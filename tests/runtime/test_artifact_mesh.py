"""Coordinates of the mesh: innermost axis first, members in coordinate order."""

from __future__ import annotations

import pytest

from tsruntime.artifact.schema import Axis, Mesh

MESH = Mesh(
    (Axis("a", 2), Axis("b", 2), Axis("c", 3)),
    {"ATTN_TP": ("a", "b"), "DENSE_TP": ("a",), "MOE_TP_EP": ("a", "b", "c")},
)


def test_world_is_the_product_of_the_axes() -> None:
    assert MESH.world == 12
    assert MESH.size(("a", "c")) == 6
    assert MESH.size(()) == 1


@pytest.mark.parametrize(
    ("axes", "coordinates"),
    [
        (("a",), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]),
        (("b",), [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]),
        (("b", "a"), [0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3]),
        (("a", "c"), [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]),
        ((), [0] * 12),
    ],
)
def test_coordinate(axes: tuple[str, ...], coordinates: list[int]) -> None:
    assert [MESH.coordinate(rank, axes) for rank in range(12)] == coordinates


def test_members_share_every_other_coordinate() -> None:
    assert MESH.members(6, ("a",)) == (6, 7)
    assert MESH.members(6, ("b",)) == (4, 6)
    assert MESH.members(6, ("b", "a")) == (4, 6, 5, 7)
    assert MESH.members(6, ("a", "c")) == (2, 3, 6, 7, 10, 11)
    assert MESH.members(6, ()) == (6,)


def test_groups_partition_the_ranks() -> None:
    for axes in MESH.groups.values():
        groups = {MESH.members(rank, axes) for rank in range(12)}
        assert sorted(rank for group in groups for rank in group) == list(range(12))
