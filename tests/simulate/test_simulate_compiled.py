"""What the compiler makes is accepted by the checker, and equals the unsharded model in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from batches import Chunk, batch_inputs
from checkpoints import FAMILIES, Family
from compile_requests import random_model, smollm2_request, tiny_model_config, tiny_request

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import CompileRequest, KvCacheRequest
from tscompile.models.annotations import ForwardInputs, checkpoint_names
from tscompile.passes.pipeline import compile_plan
from tscompile.simulate.reference import Reference
from tscompile.simulate.simulate import TOLERANCE, simulate
from tskernels.schema import DType
from tsruntime.artifact.proof.checker import check_proof


def agrees(request: CompileRequest) -> None:
    plan, certificate = compile_plan(request).plan, certify(request)
    check_proof(plan, certificate)
    reports = simulate(plan, certificate)
    assert [report.program for report in reports] == [program.name for program in plan.programs]
    assert all(report.worst.error <= TOLERANCE for report in reports)


@pytest.mark.parametrize(
    ("family", "sizes", "changes"),
    [
        ("llama", 1, {}),
        ("llama3", 3, {"attention_bias": True, "mlp_bias": True}),
        ("mistral", 2, {}),
        ("qwen3", 3, {"vocab_size": 302}),
        ("qwen2", ParallelSizes(6, 6, 2), {"vocab_size": 301}),
        ("llama3", ParallelSizes(4, 4, 2, 2, 2), {"num_key_value_heads": 12, "mlp_bias": True}),
        ("qwen3_moe", 1, {}),
        ("qwen3_moe", ParallelSizes(4, 2, 2, 2, 2), {}),
        ("qwen3_moe", ParallelSizes(4, 1, 4, 1, 4), {"mlp_only_layers": []}),
        ("qwen3_moe", ParallelSizes(6, 6, 2, 1, 6), {}),
        ("gpt_oss", ParallelSizes(4, 1, 4, 1, 4), {"num_hidden_layers": 2}),
    ],
)
def test_tiny(family: Family, sizes: int | ParallelSizes, changes: dict[str, Any]) -> None:
    agrees(tiny_request(tiny_model_config(family, **changes), sizes))


@pytest.mark.nightly
@pytest.mark.parametrize("world", [1, 2, 3, 6])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: Family, world: int) -> None:
    agrees(tiny_request(tiny_model_config(family), world))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_other_dtypes_are_simulated_in_float64(dtype: DType) -> None:
    kv = KvCacheRequest(8, dtype, pages=40)
    agrees(tiny_request(tiny_model_config("llama"), 3, dtype=dtype, kv=kv))


@pytest.mark.parametrize("family", ["qwen3", "qwen3_moe"])
def test_reference_is_the_eager_module(family: Family) -> None:
    """The certificate, run unsharded, is the model as PyTorch runs it."""
    config = tiny_model_config(family)
    request = tiny_request(config)
    model = random_model(config, torch.float64)
    assert isinstance(model, torch.nn.Module)
    names = checkpoint_names(model)
    tensors = {names[id(p)]: p.detach() for p in model.parameters()}
    plan, certificate = compile_plan(request).plan, certify(request)
    reference = Reference(certificate, tensors, plan, replicas=1)
    inputs = batch_inputs(
        [Chunk((5, 3, 8), 0, (2,)), Chunk(range(9), 0, (4, 3))],
        tokens=12,
        sequences=2,
        page_size=8,
        max_pages=plan.limits.max_pages,
    )
    (values,) = reference.run("selected", [inputs])
    caches = [torch.zeros_like(cache) for cache in reference.caches[0].values()]
    with torch.no_grad():
        logits = model(
            ForwardInputs(
                inputs["token_ids"],
                inputs["positions"],
                inputs["query_starts"],
                inputs["seq_lens"],
                inputs["logit_rows"],
                {"full": inputs["slot_mapping.full"]},
                {"full": inputs["block_table.full"]},
            ),
            caches,
        )
    assert torch.equal(values[certificate.graphs["selected"].output], logits)


def test_smollm2_plans_are_proven() -> None:
    """Thirty layers, eight programs, three ranks, without running them."""
    request = smollm2_request(3)
    check_proof(compile_plan(request).plan, certify(request))
