"""Plans of published mixtures of experts, proven at their size and simulated shrunk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from models.test_moe_config import GPT_OSS_20B, QWEN3_30B_A3B
from proof.edits import ops_of, with_input

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest, LimitsRequest
from tscompile.models.config import from_hf
from tscompile.passes.pipeline import compile_plan
from tscompile.simulate.shrink import shrink
from tscompile.simulate.simulate import simulate
from tskernels.schema import DType
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import Target

CASES = {
    "qwen3, experts over replicas": (QWEN3_30B_A3B, ParallelSizes(8, 1, 8, 1, 8)),
    "gpt-oss, width and experts": (GPT_OSS_20B, ParallelSizes(4, 2, 4, 2, 2)),
}


def request(config: dict[str, Any], sizes: ParallelSizes) -> CompileRequest:
    """Two layers at their real sizes."""
    changes = {"num_hidden_layers": 2, "layer_types": config.get("layer_types", [])[:2] or None}
    return CompileRequest(
        name="published",
        model=from_hf({**config, **changes}),
        dtype=DType.BFLOAT16,
        target=Target("cpu", "x86_64", "cpu-gloo"),
        parallel=sizes,
        buckets=Buckets((16,), ((256, 16),)),
        kv=KvCacheRequest(16, DType.BFLOAT16, pages=300),
        limits=LimitsRequest(4096, 16, 256),
    )


@pytest.mark.parametrize("name", CASES)
def test_published_models(name: str) -> None:
    asked = request(*CASES[name])
    plan, certificate = compile_plan(asked).plan, certify(asked)
    assert len(plan.weights) < 40, "no weight of its own for each expert"
    small, computed = shrink(plan, certificate)
    assert [w.name for w in small.weights] == [w.name for w in plan.weights]
    reports = simulate(small, computed, rounds=1)
    assert all(report.worst.error < 1e-12 for report in reports)


def test_another_layers_sinks_are_refused() -> None:
    asked = request(*CASES["gpt-oss, width and experts"])
    plan, certificate = compile_plan(asked).plan, certify(asked)
    plan = replace(plan, programs=plan.programs[:1])
    check_proof(plan, certificate)
    (at, first), (_, second) = ops_of(plan, "attention")
    assert first.inputs[5] != second.inputs[5]
    with pytest.raises(PlanUnproven, match="it computes attention"):
        check_proof(with_input(plan, at, 5, second.inputs[5]), certificate)
    with pytest.raises(PlanUnproven, match="it computes attention"):
        check_proof(with_input(plan, at, 5, None), certificate)
