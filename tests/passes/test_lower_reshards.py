"""Every single step between placements on 2 x 3 ranks, lowered to nodes and run on real buffers."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor

from tscompile.ir.draft import DraftValue
from tscompile.ir.errors import UnsupportedLayoutError
from tscompile.ir.graph import GATHER_DIGITS, RESHARD, SCATTER_DIGITS, Node
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.placement import PARTIAL, REPLICATE, Placements, Shard, axes_with
from tscompile.passes.lower_reshards import lower
from tscompile.search.graph import all_edges, step_graph
from tscompile.search.steps import StepKind
from tskernels.op import tensor_type
from tskernels.ops import OPS
from tskernels.ops.collectives import group
from tsruntime.artifact.schema import Attribute, RankIndex

MESH = build_mesh(ParallelSizes(world=6, attn_tp=2, dense_tp=6))  # a=2, b=3
WHOLE = torch.randn(12, 18, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
DIGITS = (("a", "b"), ("a", "b"))
EDGES = all_edges(step_graph(MESH.axes, DIGITS))


def tile(x: Tensor, placements: Placements, rank: int) -> Tensor:
    """A rank's blocks: a dim is (b, a, rest), and each axis that cuts it fixes its digit."""
    for dim in (0, 1):
        axes = axes_with(MESH, placements, Shard(dim))
        blocks = torch.unflatten(x, dim, (3, 2, -1))
        for position, axis in ((dim + 1, "a"), (dim, "b")):
            if axis in axes:
                digit = MESH.coordinate(rank, (axis,))
                blocks = blocks.narrow(position, digit, 1)
        x = blocks.flatten(dim, dim + 2)
    return x


def held(placements: Placements) -> list[Tensor]:
    """Each rank's buffer; where it is partial, parts are random but for their sum."""
    axes = axes_with(MESH, placements, PARTIAL)
    generator = torch.Generator().manual_seed(1)
    count = MESH.size(axes)
    parts = [torch.randn(WHOLE.shape, generator=generator).double() for _ in range(count - 1)]
    parts.append(WHOLE - sum(parts, torch.zeros_like(WHOLE)))
    return [
        tile(parts[MESH.coordinate(rank, axes)], placements, rank) for rank in range(MESH.world)
    ]


def run(node: Node, buffers: list[Tensor]) -> list[Tensor]:
    given = dict(node.attributes)
    if "axes" not in given:
        results: list[Tensor] = []
        for rank, buffer in enumerate(buffers):
            resolved = {
                k: MESH.coordinate(rank, v.axes) * v.stride if isinstance(v, RankIndex) else v
                for k, v in given.items()
            }
            results.append(cast("Tensor", OPS[node.op].schema.reference(buffer, **resolved)))
        return results
    axes = cast("tuple[str, ...]", given.pop("axes"))
    assert given.pop("size") == MESH.size(axes)
    outputs: dict[int, Tensor] = {}
    for members in {MESH.members(rank, axes) for rank in range(MESH.world)}:
        shards = [buffers[m] for m in members]
        outputs.update(zip(members, getattr(group, node.op)(shards, **given), strict=True))
    return [outputs[rank] for rank in range(MESH.world)]


def reshard(source: Placements, target: Placements) -> tuple[list[Node], dict[str, DraftValue]]:
    """What a reshard of WHOLE lowers to, and the values that it passes through."""
    type_ = tensor_type(WHOLE)
    values = {n: DraftValue(n, type_, p) for n, p in (("x", source), ("y", target))}
    digits: dict[str, Attribute] = {SCATTER_DIGITS: ("a", "b"), GATHER_DIGITS: ("a", "b")}
    return lower(MESH, Node(RESHARD, ("x",), ("y",), digits, "test"), values), values


def test_every_step_moves_the_right_rows_in_the_right_order() -> None:
    assert {step.kind for _, _, step in EDGES} == set(StepKind)
    permuted = 0
    for source, target, step in EDGES:
        nodes, values = reshard(source, target)
        buffers = held(source)
        for node in nodes:
            buffers = run(node, buffers)
        assert nodes[-1].outputs == ("y",)
        assert {n.outputs[0] for n in nodes} <= set(values)
        permuted += len(nodes) > 1
        axes = axes_with(MESH, target, PARTIAL)
        for rank in range(MESH.world):
            total = torch.stack([buffers[peer] for peer in MESH.members(rank, axes)]).sum(0)
            expected = tile(WHOLE, target, rank)
            assert torch.allclose(total, expected, rtol=1e-12, atol=1e-12), (source, str(step))
    assert permuted


def test_attributes_are_those_of_the_collectives() -> None:
    (node,), _ = reshard((PARTIAL, PARTIAL), (REPLICATE, REPLICATE))
    assert (node.op, node.attributes) == (
        "all_reduce",
        {"axes": ("a", "b"), "size": 6, "reduce": "sum"},
    )
    (node,), _ = reshard((REPLICATE, REPLICATE), (Shard(0), Shard(0)))
    assert (node.op, node.attributes) == (
        "slice",
        {"dim": 0, "start": RankIndex(("a", "b"), 2), "size": 2},
    )
    first, second = reshard((REPLICATE, REPLICATE), (Shard(0), REPLICATE))[0]
    assert first.attributes == {"dim": 0, "sizes": (3, 2, 2), "order": (1, 0, 2)}
    assert second.attributes == {"dim": 0, "start": RankIndex(("a",), 6), "size": 6}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((Shard(0), REPLICATE), (PARTIAL, REPLICATE)),
        ((PARTIAL, REPLICATE), (REPLICATE, Shard(0))),
    ],
)
def test_what_no_single_step_does(source: Placements, target: Placements) -> None:
    with pytest.raises(UnsupportedLayoutError) as refusal:
        reshard(source, target)
    assert "no single collective" in refusal.value.message
