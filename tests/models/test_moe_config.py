"""Configurations of mixtures of experts: published ones, options, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tscompile.ir.errors import ModelConfigError, ShardSizeError
from tscompile.ir.mesh import ParallelSizes
from tscompile.models import build, cache_layers
from tscompile.models.config import from_hf
from tscompile.models.sizes import check_sizes

QWEN3_30B_A3B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GPT_OSS_20B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {"quant_method": "mxfp4"},
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
GPT_OSS_120B = GPT_OSS_20B | {
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "num_hidden_layers": 36,
    "num_local_experts": 128,
}
QWEN3_235B_A22B = QWEN3_30B_A3B | {
    "hidden_size": 4096,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_hidden_layers": 94,
}


@pytest.mark.parametrize(
    ("config", "billions"),
    [(QWEN3_30B_A3B, 30.5), (QWEN3_235B_A22B, 235.1), (GPT_OSS_20B, 20.9), (GPT_OSS_120B, 116.8)],
)
def test_published_models_have_their_published_sizes(
    config: dict[str, Any], billions: float
) -> None:
    """Parameters as the model cards count them."""
    with torch.device("meta"):
        model = build(from_hf(config))
    assert isinstance(model, torch.nn.Module)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert round(count / 1e9, 1) == billions


def test_qwen3_moes_dense_layers() -> None:
    def dense(**changes: Any) -> set[int]:
        moe = from_hf({**QWEN3_30B_A3B, "num_hidden_layers": 6, **changes}).moe
        assert moe is not None
        return set(moe.dense_layers)

    assert dense() == set()
    assert dense(mlp_only_layers=[0, 4]) == {0, 4}
    assert dense(decoder_sparse_step=2) == {0, 2, 4}
    assert dense(decoder_sparse_step=3, mlp_only_layers=[5]) == {0, 1, 3, 4, 5}


def test_gpt_oss_keeps_two_kinds_of_caches() -> None:
    layers = cache_layers(from_hf(GPT_OSS_20B))
    assert [(layer.group, layer.window) for layer in layers[:2]] == [("window", 128), ("full", 0)]
    assert len({layer.group for layer in layers[::2]}) == 1
    alternating = {key: value for key, value in GPT_OSS_20B.items() if key != "layer_types"}
    assert cache_layers(from_hf(alternating)) == layers


@pytest.mark.parametrize(
    ("base", "changes", "key", "named"),
    [
        (QWEN3_30B_A3B, {"num_experts": None}, "num_experts", "None"),
        (QWEN3_30B_A3B, {"num_experts_per_tok": 0}, "num_experts_per_tok", "0"),
        (QWEN3_30B_A3B, {"moe_intermediate_size": "x"}, "moe_intermediate_size", "'x'"),
        (GPT_OSS_20B, {"layer_types": ["full_attention"]}, "layer_types", "1 layers"),
        (GPT_OSS_20B, {"layer_types": ["chunked"] * 24}, "layer_types", "chunked"),
        (GPT_OSS_20B, {"swiglu_limit": 0}, "swiglu_limit", "0"),
        (GPT_OSS_20B, {"sliding_window": None}, "sliding_window", "None"),
        (
            GPT_OSS_20B,
            {"quantization_config": {"quant_method": "gptq"}},
            "quantization_config",
            "gptq",
        ),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    base: dict[str, Any], changes: dict[str, Any], key: str, named: str
) -> None:
    with pytest.raises(ModelConfigError) as refusal:
        from_hf({**base, **changes})
    assert refusal.value.where == key
    assert named in refusal.value.message


def test_sizes_that_do_not_divide_the_experts() -> None:
    config = from_hf(QWEN3_30B_A3B)
    check_sizes(config, ParallelSizes(8, 4, 8, 2, 4))
    with pytest.raises(ShardSizeError, match="moe_ep = 3 does not divide") as refusal:
        check_sizes(config, ParallelSizes(3, 1, 3, 1, 3))
    assert "128" in refusal.value.message
    with pytest.raises(ShardSizeError, match=r"moe_tp = 5 does not divide .* 768"):
        check_sizes(config, ParallelSizes(5, 1, 1, 5, 1))
