"""DeepSeek's plans: proven, equal to the unsharded model, and what the checker refuses in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from compile_requests import tiny_model_config, tiny_request
from proof.edits import ops_of, with_attributes, with_input, with_weight

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest, LimitsRequest
from tscompile.passes.pipeline import compile_plan
from tscompile.simulate.shrink import shrink
from tscompile.simulate.simulate import TOLERANCE, simulate
from tskernels.schema import DType
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import Plan

TOKENS = 64


def request(sizes: ParallelSizes, **changes: Any) -> CompileRequest:
    """Two layers, dense and sparse; a decode bucket and one long enough to expand the latents."""
    config = tiny_model_config("deepseek", num_hidden_layers=2, **changes)
    return tiny_request(
        config,
        sizes,
        buckets=Buckets((4,), ((TOKENS, 4),)),
        limits=LimitsRequest(max_model_len=96, max_batch=4, token_budget=TOKENS),
    )


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        (ParallelSizes(1, 1, 1), {"q_lora_rank": None}),
        (ParallelSizes(2, 2, 2, 1, 2), {"attention_bias": True}),
        (ParallelSizes(4, 4, 2, 2, 2), {}),
        (ParallelSizes(4, 2, 4, 1, 4), {}),
        (ParallelSizes(4, 1, 2, 1, 4), {}),
    ],
)
def test_equals_the_unsharded_model(sizes: ParallelSizes, changes: dict[str, Any]) -> None:
    """Heads cut, latents on every rank of a replica, each replica its own pages."""
    made = request(sizes, **changes)
    plan, certificate = compile_plan(made).plan, certify(made)
    check_proof(plan, certificate)
    reports = simulate(plan, certificate, rounds=2)
    assert all(report.worst.error <= TOLERANCE for report in reports)
    (group,) = plan.kv_cache.groups
    assert (group.name, group.planes, group.kv_heads, group.axes) == ("latent", 1, 1, ())


def test_shrunk_it_is_the_same_plan() -> None:
    made = request(
        ParallelSizes(4, 4, 4, 1, 4),
        kv_lora_rank=128,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
        v_head_dim=64,
    )
    plan, certificate = compile_plan(made).plan, certify(made)
    small, computed = shrink(plan, certificate)
    widths = {c.head_dim for c in computed.caches}
    assert widths == {(128 + 32) // 8}
    simulate(small, computed, rounds=1)


@pytest.fixture(scope="module")
def proven() -> tuple[Plan, Certificate]:
    made = request(ParallelSizes(4, 4, 2, 1, 2))
    return compile_plan(made).plan, certify(made)


def wrong(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans of the same shapes that compute something else."""
    (attend, mla), *_ = ops_of(plan, "mla")
    (write, latent_write), *_ = ops_of(plan, "latent_write")
    (turn, _), *_ = ops_of(plan, "rotary")
    unwritten = with_input(plan, attend, 2, latent_write.inputs[2])
    yield "latents read before they are written", unwritten
    yield "another scale", with_attributes(plan, attend, scale=0.5)
    yield "halves for neighbours", with_attributes(plan, turn, interleaved=False)
    others = [op.inputs[3] for _, op in ops_of(plan, "mla") if op.inputs[3] != mla.inputs[3]]
    yield "another layer's kv_b", with_input(plan, attend, 3, others[0])
    kv_b = next(w for w in plan.weights if w.name.endswith("kv_b_proj.weight"))
    (part,) = kv_b.parts
    inside_out = replace(part, axes=part.axes[::-1])
    assert inside_out != part
    yield "other ranks' heads", with_weight(plan, replace(kv_b, parts=(inside_out,)))
    yield "positions for slots", with_input(plan, write, 3, "positions")
    (group,) = plan.kv_cache.groups
    yield (
        "two planes",
        replace(plan, kv_cache=replace(plan.kv_cache, groups=(replace(group, planes=2),))),
    )


def test_wrong_plans_are_refused(proven: tuple[Plan, Certificate]) -> None:
    plan, certificate = proven
    for name, mutant in wrong(plan):
        with pytest.raises(PlanUnproven):
            check_proof(mutant, certificate)
            pytest.fail(f"accepted: {name}")


def test_either_way_of_computing_it_is_accepted(proven: tuple[Plan, Certificate]) -> None:
    plan, certificate = proven
    ways = {op.attributes["absorbed"] for p in plan.programs for op in p.ops if op.op == "mla"}
    assert ways == {False, True}  # decode absorbs, the long bucket expands
    for index, op in ops_of(plan, "mla"):
        other = not op.attributes["absorbed"]
        check_proof(with_attributes(plan, index, absorbed=other), certificate)


def test_the_correction_bias_stays_float32() -> None:
    """Rounded to bfloat16 it would choose other experts; all other weights are as asked."""
    made = replace(
        request(ParallelSizes(1, 1, 1)),
        dtype=DType.BFLOAT16,
        kv=KvCacheRequest(8, DType.BFLOAT16, pages=40),
    )
    plan, certificate = compile_plan(made).plan, certify(made)
    check_proof(plan, certificate)
    wide = [w.name for w in plan.weights if w.dtype is DType.FLOAT32 and w.constant is None]
    assert wide == ["model.layers.1.mlp.gate.e_score_correction_bias"]
