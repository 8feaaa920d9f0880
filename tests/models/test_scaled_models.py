"""Models whose linears are scaled in blocks: against numpy, sharded against whole, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from compile_requests import tiny_model_config, tiny_request

from tscompile.freeze.certificate import certify
from tscompile.ir.errors import ModelConfigError, ShardSizeError
from tscompile.ir.mesh import ParallelSizes
from tscompile.models import ModelConfig, build
from tscompile.models.annotations import checkpoint_names
from tscompile.passes.pipeline import compile_plan
from tscompile.simulate.errors import CannotShrink
from tscompile.simulate.shrink import shrink
from tscompile.simulate.simulate import TOLERANCE, simulate
from tskernels import ops
from tskernels.schema import DType
from tskernels.shapes import ShapeError
from tsruntime.artifact.proof.checker import check_proof


def quantized(**changes: Any) -> dict[str, Any]:
    """The `quantization_config` of Qwen3's FP8 checkpoints, in small blocks."""
    return {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [16, 16],
        **changes,
    }


def fp8_model(**changes: Any) -> ModelConfig:
    fields = {"intermediate_size": 192, "quantization_config": quantized()} | changes
    return tiny_model_config("qwen3", **fields)


def test_the_reference_multiplies_each_block_by_its_scale() -> None:
    random = np.random.default_rng(3)
    weight = torch.tensor(random.uniform(-448, 448, (37, 50))).to(torch.float8_e4m3fn)
    scale = torch.tensor(random.uniform(0.01, 0.02, (3, 7)))
    x = torch.tensor(random.normal(size=(5, 50)))
    wide = weight.double().numpy().copy()
    for i in range(3):
        for j in range(7):
            wide[16 * i : 16 * i + 16, 8 * j : 8 * j + 8] *= float(scale[i, j])
    got = ops.scaled_linear(x, weight, scale, block=(16, 8))
    assert np.abs(got.numpy() - x.numpy() @ wide.T).max() < 1e-10


def test_bfloat16_is_summed_in_float32() -> None:
    """A thousand ones beside a large number, which bfloat16 sums would lose."""
    x = torch.ones(1, 1025, dtype=torch.bfloat16)
    x[0, 0] = 4096
    weight = torch.ones(1, 1025).to(torch.float8_e4m3fn)
    got = ops.scaled_linear(x, weight, torch.ones(1, 9), block=(128, 128))
    assert got.dtype == torch.bfloat16
    assert got.item() == 5120


@pytest.mark.parametrize(
    ("weight", "scale", "said"),
    [
        ((32, 40), (2, 2), "the weight's blocks is (2, 3)"),
        ((32, 39), (2, 3), "x.shape[1] is 40, but weight.shape[1] is 39"),
    ],
)
def test_scales_that_do_not_fit_are_refused(
    weight: tuple[int, int], scale: tuple[int, int], said: str
) -> None:
    made = torch.empty(weight, dtype=torch.float8_e4m3fn)
    with pytest.raises(ShapeError) as refusal:
        ops.scaled_linear(torch.empty(1, 40), made, torch.empty(scale), block=(16, 16))
    assert said in refusal.value.message


@pytest.mark.parametrize("sizes", [ParallelSizes(6, 6, 3), ParallelSizes(4, 2, 4)])
def test_every_rank_count_gives_the_unsharded_values(sizes: ParallelSizes) -> None:
    """KV heads apart or shared, replicas; packed and not, fused with silu_mul and not."""
    request = tiny_request(fp8_model(), sizes)
    plan, certificate = compile_plan(request).plan, certify(request)
    check_proof(plan, certificate)
    assert {w.dtype for w in plan.weights if "_proj.weight" in w.name} == {
        DType.FLOAT8_E4M3,
        DType.FLOAT64,
    }
    assert max(r.worst.error for r in simulate(plan, certificate, rounds=1)) <= TOLERANCE


def test_blocks_shrink_with_the_model() -> None:
    request = tiny_request(fp8_model(num_hidden_layers=1), 3)
    plan, certificate = compile_plan(request).plan, certify(request)
    small, computed = shrink(plan, certificate)
    blocks = {
        op.attributes["block"] for p in small.programs for op in p.ops if op.op == "scaled_linear"
    }
    assert blocks == {(4, 4)}
    assert max(r.worst.error for r in simulate(small, computed, rounds=1)) <= TOLERANCE


def test_a_weight_that_ends_within_a_block_does_not_shrink() -> None:
    request = tiny_request(fp8_model(num_hidden_layers=1, intermediate_size=200))
    plan, certificate = compile_plan(request).plan, certify(request)
    packed = [w.name for w in plan.weights if "gate_up_proj" in w.name]
    assert not packed  # up would begin within a block
    assert max(r.worst.error for r in simulate(plan, certificate, rounds=1)) <= TOLERANCE
    with pytest.raises(CannotShrink, match="ends within a block of 16"):
        shrink(plan, certificate)


def test_heads_that_are_no_whole_blocks_are_named() -> None:
    """Six KV heads of 16 in blocks of 32: two of them go together."""
    config = fp8_model(quantization_config=quantized(weight_block_size=[32, 32]))
    with pytest.raises(ShardSizeError) as refusal:
        compile_plan(tiny_request(config, ParallelSizes(6, 6, 6)))
    assert "attn_tp = 6 cuts the 192 columns" in refusal.value.message or (
        "attn_tp = 6 cuts the 96 rows of model.layers.0.self_attn.k_proj" in refusal.value.message
    )
    compile_plan(tiny_request(config, ParallelSizes(3, 3, 3)))


@pytest.mark.parametrize(
    "names", [["down_proj", "o_proj"], ["model.layers.0", "model.layers.1.mlp"]]
)
def test_modules_that_are_not_converted_stay_as_they_are(names: list[str]) -> None:
    changes = quantized(modules_to_not_convert=["lm_head", *names])
    config = fp8_model(num_hidden_layers=2, quantization_config=changes)
    with torch.device("meta"):
        parameters = checkpoint_names(build(config)).values()  # pyright: ignore[reportArgumentType]
    scaled = {n.removesuffix("_scale_inv") for n in parameters if n.endswith("_scale_inv")}
    assert not any(name in weight for name in names for weight in scaled)
    assert "model.layers.1.self_attn.q_proj.weight" in scaled
    assert "lm_head.weight" not in scaled


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"fmt": "e5m2"}, "quantization_config.fmt"),
        ({"activation_scheme": "static"}, "quantization_config.activation_scheme"),
        ({"modules_to_not_convert": [3]}, "quantization_config.modules_to_not_convert"),
        ({"weight_block_size": None}, "quantization_config"),
    ],
)
def test_other_quantizations_are_refused(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(ModelConfigError) as refusal:
        fp8_model(quantization_config=quantized(**changes))
    assert refusal.value.where == where
