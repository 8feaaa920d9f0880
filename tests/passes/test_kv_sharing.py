"""More ranks than KV heads: several ranks hold one KV head and part its query heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from checkpoints import Family
from compile_requests import random_model, tiny_model_config, tiny_request
from interpreter import Interpreter
from passes.test_sharded_equivalence import serve, state
from proof.edits import with_weight

from tscompile.freeze.certificate import certify
from tscompile.ir.errors import MeshError
from tscompile.ir.mesh import ATTN_KV, ATTN_TP, ParallelSizes, build_mesh, sharing_axes
from tscompile.ir.request import Buckets, LimitsRequest
from tscompile.passes.pipeline import compile_plan
from tscompile.rules import RULES
from tscompile.simulate.simulate import TOLERANCE, simulate
from tskernels import ops
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import Axis

SMALL = Buckets((2,), ((16, 2),))
LIMITS = LimitsRequest(max_model_len=40, max_batch=2, token_budget=16)


def test_attention_is_cut_again_by_kv_heads() -> None:
    """Eight ranks for two KV heads: four innermost neighbours share one."""
    mesh = build_mesh(ParallelSizes(16, 8, 2), kv_heads=2)
    assert mesh.axes == (Axis("a", 2), Axis("b", 2), Axis("c", 2), Axis("d", 2))
    assert (mesh.groups[ATTN_TP], mesh.groups[ATTN_KV]) == (("a", "b", "c"), ("c",))
    assert sharing_axes(mesh) == {"a", "b"}
    assert [mesh.coordinate(rank, mesh.groups[ATTN_KV]) for rank in range(8)] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("kv_heads", [4, 8, 32, None])
def test_enough_kv_heads_are_not_shared(kv_heads: int | None) -> None:
    mesh = build_mesh(ParallelSizes(4, 4, 4), kv_heads)
    assert mesh.groups[ATTN_KV] == mesh.groups[ATTN_TP] == ("a",)
    assert not sharing_axes(mesh)


def test_sharing_must_nest_with_the_other_groups() -> None:
    with pytest.raises(MeshError, match="attn_tp / KV heads = 2 and dense_tp = 3 do not nest"):
        build_mesh(ParallelSizes(6, 6, 3), kv_heads=3)


def test_a_shared_head_serves_the_query_heads_of_each_rank() -> None:
    """The strategy along sharing axes, run: three ranks, two query heads each, one KV head."""
    strategy = RULES["attention"].by_sharing
    assert strategy is not None
    assert [str(p) for p in strategy.inputs[:2]] == ["Shard(1)", "Replicate"]
    query, cache = torch.randn(3, 6, 4).double(), torch.randn(3, 2, 1, 4, 4).double()
    table = torch.tensor([[2]], dtype=torch.int32)
    starts = torch.tensor([0, 3], dtype=torch.int32)
    rest = (cache, table, torch.tensor([3], dtype=torch.int32), starts)
    parts = [ops.attention(part, *rest, scale=0.5) for part in query.chunk(3, dim=1)]
    whole = ops.attention(query, *rest, scale=0.5)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("family", "sizes", "changes"),
    [
        ("llama", ParallelSizes(4, 4, 4), {"num_key_value_heads": 2}),
        ("qwen3", ParallelSizes(4, 4, 2), {"num_key_value_heads": 1}),
        ("llama3", ParallelSizes(6, 6, 2), {"num_key_value_heads": 3, "attention_bias": True}),
    ],
)
def test_equals_the_unsharded_model(
    family: Family, sizes: ParallelSizes, changes: dict[str, Any]
) -> None:
    config = tiny_model_config(family, **changes)
    model = random_model(config, torch.float64)
    plan = compile_plan(tiny_request(config, sizes)).plan
    assert {group.kv_heads for group in plan.kv_cache.groups} == {1}
    serve(Interpreter(plan, state(model)), model)


def test_each_replica_shares_its_own() -> None:
    """Two replicas of four ranks, two KV heads; proven, and every value simulated."""
    config = tiny_model_config("qwen2", num_key_value_heads=2, num_hidden_layers=2)
    request = tiny_request(config, ParallelSizes(8, 4, 8), buckets=SMALL, limits=LIMITS)
    plan, certificate = compile_plan(request).plan, certify(request)
    check_proof(plan, certificate)
    assert all(r.worst.error <= TOLERANCE for r in simulate(plan, certificate, rounds=1))


def test_the_checker_sees_the_wrong_ranks_sharing() -> None:
    """Keys cut over the inner axis instead of the outer: every shape is as before."""
    config = tiny_model_config("llama", num_key_value_heads=2, num_hidden_layers=1)
    request = tiny_request(config, ParallelSizes(4, 4, 2))
    plan, certificate = compile_plan(request).plan, certify(request)
    check_proof(plan, certificate)
    keys = next(w for w in plan.weights if any("k_proj" in part.tensor for part in w.parts))
    assert keys.axes == ("b",)
    parts = tuple(replace(part, axes=("a",)) for part in keys.parts)
    with pytest.raises(PlanUnproven, match="heads"):
        check_proof(with_weight(plan, replace(keys, axes=("a",), parts=parts)), certificate)
