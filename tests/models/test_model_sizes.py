"""What is refused from the config alone: heads, experts, widths, blocks; and bytes of caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checkpoints import tiny_config
from compile_requests import smollm2_config, tiny_model_config, tiny_request

from tscompile.ir.errors import ShardSizeError, UnsupportedQuantizationError
from tscompile.ir.mesh import ParallelSizes
from tscompile.models import build, cache_layers
from tscompile.models.blocks import check_blocks
from tscompile.models.config import from_hf
from tscompile.models.sizes import size_problems, token_bytes
from tscompile.passes.pipeline import compile_plan

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        (ParallelSizes(8, 8, 1, 1, 1), {"attn_tp": "8 does not divide 12 attention heads and 12"}),
        (ParallelSizes(8, 1, 1, 1, 8), {"moe_ep": "8 does not divide the number of experts, 12"}),
        (ParallelSizes(5, 1, 1, 5, 1), {"moe_tp": "5 does not divide an expert's intermediate"}),
        (
            ParallelSizes(5, 5, 5, 1, 5),
            {
                "attn_tp": "5 does not divide 12 attention heads",
                "dense_tp": "5 does not divide an intermediate size of 144",
                "moe_ep": "5 does not divide the number of experts, 12",
            },
        ),
        (ParallelSizes(12, 12, 12, 1, 12), {}),
    ],
)
def test_every_size_that_does_not_divide_is_named(
    sizes: ParallelSizes, told: dict[str, str]
) -> None:
    problems = size_problems(tiny_model_config("deepseek"), sizes)
    assert [problem.key for problem in problems] == list(told)
    for problem in problems:
        assert f"{problem.key} = {told[problem.key]}" in problem.message
        assert f"legal sizes of {problem.key} for this model: 1, " in problem.remedy


def test_only_widths_that_a_model_has_must_divide() -> None:
    """GPT-OSS has no dense layer, DeepSeek's shared experts are cut as one: 144 wide, 2 x 36."""
    sizes = ParallelSizes(5, 1, 5, 1, 1)
    assert not size_problems(tiny_model_config("gpt_oss"), sizes)
    sparse: dict[str, Any] = {"mlp_only_layers": [], "num_experts": 8, "moe_intermediate_size": 48}
    assert not size_problems(tiny_model_config("qwen3_moe", **sparse), sizes)
    dense = tiny_model_config("qwen3_moe", **{**sparse, "mlp_only_layers": [1]})
    assert [p.key for p in size_problems(dense, sizes)] == ["dense_tp"]
    shared = tiny_model_config(
        "deepseek", first_k_dense_replace=0, n_shared_experts=2, moe_intermediate_size=36
    )
    assert not size_problems(shared, ParallelSizes(8, 1, 8, 1, 1))
    (problem,) = size_problems(shared, ParallelSizes(16, 1, 16, 1, 1))
    assert problem.message == "dense_tp = 16 does not divide the shared experts' width of 72"


def fp8_config(**changes: Any) -> dict[str, Any]:
    """DeepSeek's shapes at 256 where it matters, its matrices in blocks of 128 x 128."""
    sizes = {
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64,
        "v_head_dim": 64,
        "intermediate_size": 1024,
        "moe_intermediate_size": 512,
    }
    config = tiny_config("deepseek", **(sizes | changes)).to_dict()
    return {**config, "architectures": ["DeepseekV3ForCausalLM"], "quantization_config": FP8}


@pytest.mark.parametrize(
    ("sizes", "told", "legal"),
    [
        (
            ParallelSizes(8, 8, 1),
            "attn_tp = 8 cuts the 512 columns of model.layers.0.self_attn.o_proj.weight",
            "1, 2, 4",
        ),
        (
            ParallelSizes(16, 1, 16),
            "dense_tp = 16 cuts the 1024 rows of model.layers.0.mlp.gate_proj.weight",
            "1, 2, 4, 8",
        ),
        (
            ParallelSizes(8, 1, 1, 8),
            "moe_tp = 8 cuts the 512 rows of model.layers.1.mlp.experts.{}.gate_proj.weight",
            "1, 2, 4",
        ),
    ],
)
def test_cuts_through_quantization_blocks_are_named(
    sizes: ParallelSizes, told: str, legal: str
) -> None:
    with torch.device("meta"):
        model = build(from_hf(fp8_config()))
    with pytest.raises(ShardSizeError) as refusal:
        check_blocks(model, sizes)
    assert told in refusal.value.message
    assert "128-wide quantization blocks" in refusal.value.message
    assert refusal.value.remedy.endswith(f"keep its blocks whole: {legal}")


def test_blocks_that_divide_are_refused_as_not_supported_yet() -> None:
    with torch.device("meta"):
        model = build(from_hf(fp8_config()))
    with pytest.raises(UnsupportedQuantizationError, match="blocks of 128 x 128") as refusal:
        check_blocks(model, ParallelSizes(4, 4, 8, 4, 1))
    assert "bfloat16" in refusal.value.remedy


def test_the_compiler_refuses_them_before_anything_else() -> None:
    config = from_hf(fp8_config())
    with pytest.raises(ShardSizeError, match="moe_tp = 8 cuts"):
        compile_plan(tiny_request(config, ParallelSizes(8, 4, 8, 8, 1)))
    with pytest.raises(UnsupportedQuantizationError):
        compile_plan(tiny_request(config, ParallelSizes(4, 4, 4, 4, 1)))


def test_models_without_blocks_pass() -> None:
    with torch.device("meta"):
        check_blocks(build(from_hf(smollm2_config())), ParallelSizes(3, 3, 3))


def test_bytes_of_a_token_in_the_caches() -> None:
    """Two bytes an entry: keys and values by head, one latent for all of them."""
    llama = cache_layers(from_hf(smollm2_config()))  # 30 layers of 3 heads of 64
    assert token_bytes(llama, 1, 2) == 30 * 2 * 3 * 64 * 2
    assert token_bytes(llama, 3, 2) == 30 * 2 * 64 * 2
    assert token_bytes(llama, 9, 2) == 30 * 2 * 64 * 2  # each head on three ranks
    latents = cache_layers(tiny_model_config("deepseek"))
    assert token_bytes(latents, 1, 2) == token_bytes(latents, 4, 2) == 3 * (20 + 4) * 2
