from __future__ import annotations

from itertools import product

import pytest

from tscompile.ir.errors import MeshError
from tscompile.ir.mesh import (
    ATTN_DP,
    ATTN_TP,
    DENSE_TP,
    MOE_EP,
    MOE_TP,
    MOE_TP_EP,
    ParallelSizes,
    build_mesh,
)
from tsruntime.artifact.schema import Axis


def test_the_designs_example() -> None:
    mesh = build_mesh(ParallelSizes(world=8, attn_tp=4, dense_tp=2, moe_tp=1, moe_ep=8))
    assert mesh.axes == (Axis("a", 2), Axis("b", 2), Axis("c", 2))
    assert mesh.groups[ATTN_TP] == ("a", "b")
    assert mesh.groups[DENSE_TP] == ("a",)
    assert mesh.groups[MOE_TP_EP] == ("a", "b", "c")
    assert mesh.groups[ATTN_DP] == ("c",)


def test_expert_tensor_parallel_axes_are_innermost() -> None:
    mesh = build_mesh(ParallelSizes(world=8, attn_tp=8, dense_tp=8, moe_tp=2, moe_ep=4))
    assert mesh.axes == (Axis("a", 2), Axis("b", 4))
    assert (mesh.groups[MOE_TP], mesh.groups[MOE_EP]) == (("a",), ("b",))
    assert mesh.members(5, mesh.groups[MOE_TP]) == (4, 5)
    assert mesh.members(5, mesh.groups[MOE_EP]) == (1, 3, 5, 7)


def test_one_rank_has_no_axis() -> None:
    mesh = build_mesh(ParallelSizes(world=1, attn_tp=1, dense_tp=1))
    assert mesh.axes == ()
    assert set(mesh.groups.values()) == {()}


def _legal_sizes(world: int) -> list[ParallelSizes]:
    divisors = [d for d in range(1, world + 1) if world % d == 0]
    return [
        ParallelSizes(world, attn, dense, moe_tp, moe_ep)
        for attn, dense, moe_tp, moe_ep in product(divisors, repeat=4)
        if world % (moe_tp * moe_ep) == 0
        and all(
            a % b == 0 or b % a == 0
            for a, b in product((attn, dense, moe_tp, moe_tp * moe_ep), repeat=2)
        )
    ]


@pytest.mark.parametrize("world", [1, 2, 4, 6, 8, 12, 16])
def test_every_group_partitions_the_ranks_into_equal_sets(world: int) -> None:
    for sizes in _legal_sizes(world):
        mesh = build_mesh(sizes)
        assert mesh.world == world
        wanted = {
            ATTN_TP: sizes.attn_tp,
            DENSE_TP: sizes.dense_tp,
            MOE_TP: sizes.moe_tp,
            MOE_EP: sizes.moe_ep,
            MOE_TP_EP: sizes.moe_tp * sizes.moe_ep,
            ATTN_DP: world // sizes.attn_tp,
        }
        for group, size in wanted.items():
            sets = {mesh.members(rank, mesh.groups[group]) for rank in range(world)}
            assert {len(ranks) for ranks in sets} == {size}
            assert sorted(rank for ranks in sets for rank in ranks) == list(range(world))


def test_the_refinement_is_the_coarsest() -> None:
    for sizes in _legal_sizes(12):
        mesh = build_mesh(sizes)
        cuts = {
            n
            for n in (
                sizes.attn_tp,
                sizes.dense_tp,
                sizes.moe_tp,
                sizes.moe_tp * sizes.moe_ep,
                sizes.world,
            )
            if n > 1
        }
        assert len(mesh.axes) == len(cuts)
        assert all(axis.size > 1 for axis in mesh.axes)


def test_sizes_that_do_not_nest_are_refused_with_the_legal_ones() -> None:
    with pytest.raises(MeshError) as refusal:
        build_mesh(ParallelSizes(world=12, attn_tp=4, dense_tp=6))
    text = str(refusal.value)
    assert "attn_tp = 4" in text
    assert "dense_tp = 6" in text
    assert "1, 2, 12" in text


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        (ParallelSizes(world=8, attn_tp=3, dense_tp=8), "attn_tp = 3"),
        (ParallelSizes(world=8, attn_tp=8, dense_tp=0), "dense_tp = 0"),
        (ParallelSizes(world=8, attn_tp=8, dense_tp=8, moe_tp=4, moe_ep=4), "moe_tp * moe_ep = 16"),
    ],
)
def test_sizes_that_do_not_divide_the_world_are_refused(sizes: ParallelSizes, named: str) -> None:
    with pytest.raises(MeshError) as refusal:
        build_mesh(sizes)
    assert named in str(refusal.value)
    assert "1, 2, 4, 8" in refusal.value.remedy
