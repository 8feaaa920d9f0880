"""Reshards of every pair of placements on 2 x 3 ranks, run on real buffers."""

from __future__ import annotations

from itertools import product
from typing import cast

import pytest
import torch
from torch import Tensor

from tscompile.ir.errors import UnsupportedLayoutError
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.placement import (
    PARTIAL,
    REPLICATE,
    Placement,
    Placements,
    Shard,
    axes_with,
    label,
)
from tscompile.passes.lower_reshards import Step, lower
from tskernels.op import tensor_type
from tskernels.ops import OPS
from tskernels.ops.collectives import group
from tsruntime.artifact.schema import RankIndex

MESH = build_mesh(ParallelSizes(world=6, attn_tp=2, dense_tp=6))  # a=2, b=3
WHOLE = torch.randn(12, 18, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EACH: tuple[Placement, ...] = (REPLICATE, Shard(0), Shard(1), PARTIAL)
PAIRS = [
    (source, target) for source in product(EACH, repeat=2) for target in product(EACH, repeat=2)
]


def tile(x: Tensor, placements: Placements, rank: int) -> Tensor:
    """A rank's block of each sharded dim, by its coordinate (innermost axis, lowest digit)."""
    for dim in (0, 1):
        axes = axes_with(MESH, placements, Shard(dim))
        x = x.chunk(MESH.size(axes), dim)[MESH.coordinate(rank, axes)]
    return x


def held(placements: Placements) -> list[Tensor]:
    """Each rank's buffer; where it is partial, parts are random but for their sum."""
    axes = axes_with(MESH, placements, PARTIAL)
    count = MESH.size(axes)
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(WHOLE.shape, generator=generator).double() for _ in range(count - 1)]
    parts.append(WHOLE - sum(parts, torch.zeros_like(WHOLE)))
    return [
        tile(parts[MESH.coordinate(rank, axes)], placements, rank) for rank in range(MESH.world)
    ]


def run(step: Step, buffers: list[Tensor]) -> list[Tensor]:
    given = dict(step.attributes)
    if step.op in ("slice", "mask"):
        results: list[Tensor] = []
        for rank, buffer in enumerate(buffers):
            resolved = {
                k: MESH.coordinate(rank, v.axes) * v.stride if isinstance(v, RankIndex) else v
                for k, v in given.items()
            }
            results.append(cast("Tensor", OPS[step.op].schema.reference(buffer, **resolved)))
        return results
    axes = cast("tuple[str, ...]", given.pop("axes"))
    assert given.pop("size") == MESH.size(axes)
    outputs: dict[int, Tensor] = {}
    for members in {MESH.members(rank, axes) for rank in range(MESH.world)}:
        shards = [buffers[m] for m in members]
        outputs.update(zip(members, getattr(group, step.op)(shards, **given), strict=True))
    return [outputs[rank] for rank in range(MESH.world)]


def value_of(buffers: list[Tensor], placements: Placements) -> None:
    """Check that the buffers are a right representation of WHOLE."""
    axes = axes_with(MESH, placements, PARTIAL)
    for rank in range(MESH.world):
        peers = MESH.members(rank, axes)
        total = torch.stack([buffers[p] for p in peers]).sum(0)
        torch.testing.assert_close(total, tile(WHOLE, placements, rank), rtol=1e-12, atol=1e-12)


def permuted(source: Placements, target: Placements) -> bool:
    """Whether axis b changes alone while axis a, a lower digit, cuts the same dim."""
    (a, b), (new_a, new_b) = source, target
    if b == new_b or (a, new_a) == (b, new_b):
        return False
    order = ("PS", "RS", "SS", "PR", "RP", "SR")
    kinds = [str(s)[0] + str(t)[0] for s, t in ((a, new_a), (b, new_b))]
    a_waits = a == new_a or order.index(kinds[1]) < order.index(kinds[0])
    meanwhile = a if a_waits or kinds[0] == kinds[1] else new_a
    return isinstance(meanwhile, Shard) and meanwhile in (b, new_b)


@pytest.mark.parametrize(
    ("source", "target"), PAIRS, ids=[f"{label(MESH, s)}-to-{label(MESH, t)}" for s, t in PAIRS]
)
def test_reshard(source: Placements, target: Placements) -> None:
    """Right rows in the right order, or a refusal where no step or only a permutation would do."""
    impossible = any(
        isinstance(s, Shard) and t == PARTIAL for s, t in zip(source, target, strict=True)
    )
    if impossible or permuted(source, target):
        with pytest.raises(UnsupportedLayoutError):
            lower(MESH, tensor_type(WHOLE), source, target)
        return
    steps = lower(MESH, tensor_type(WHOLE), source, target)
    buffers = held(source)
    for step in steps:
        buffers = run(step, buffers)
        value_of(buffers, step.placements)
    value_of(buffers, target)


def test_axes_that_change_alike_go_in_one_step() -> None:
    steps = lower(MESH, tensor_type(WHOLE), (PARTIAL, PARTIAL), (REPLICATE, REPLICATE))
    assert [(s.op, s.attributes) for s in steps] == [
        ("all_reduce", {"axes": ("a", "b"), "size": 6, "reduce": "sum"})
    ]


def test_what_shrinks_comes_first() -> None:
    steps = lower(MESH, tensor_type(WHOLE), (Shard(0), PARTIAL), (REPLICATE, Shard(1)))
    assert [s.op for s in steps] == ["reduce_scatter", "all_gather"]
