from __future__ import annotations

from typing import Any

import pytest
from compile_requests import smollm2_config

from tscompile.ir.errors import ModelConfigError, ShardSizeError
from tscompile.ir.mesh import ParallelSizes
from tscompile.models.config import from_hf
from tscompile.models.sizes import check_sizes


def test_smollm2() -> None:
    config = from_hf(smollm2_config())
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert config.tied_embeddings
    assert not config.qkv_bias
    assert config.window == 0


@pytest.mark.parametrize(
    ("changes", "key", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures", "GPT2LMHeadModel"),
        ({"architectures": None}, "architectures", "None"),
        ({"hidden_act": "gelu"}, "hidden_act", "'gelu'"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads", "{'0': [1]}"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config", "gptq"),
        ({"pretraining_tp": 2}, "pretraining_tp", "2"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layer_types", "chunked"),
        ({"partial_rotary_factor": 0.5}, "rope_scaling.partial_rotary_factor", "partial"),
        ({"hidden_size": None}, "hidden_size", "None"),
        ({"num_hidden_layers": 0}, "num_hidden_layers", "0"),
        ({"vocab_size": "many"}, "vocab_size", "'many'"),
        ({"num_key_value_heads": 4}, "num_key_value_heads", "9"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps", "-1.0"),
        ({"hidden_size": 577}, "head_dim", "577"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    changes: dict[str, Any], key: str, named: str
) -> None:
    with pytest.raises(ModelConfigError) as refusal:
        from_hf({**smollm2_config(), **changes})
    assert refusal.value.where == key
    assert named in refusal.value.message


def test_the_list_of_architectures_is_in_the_remedy() -> None:
    with pytest.raises(ModelConfigError) as refusal:
        from_hf({**smollm2_config(), "architectures": ["GPT2LMHeadModel"]})
    for name in ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"):
        assert name in refusal.value.remedy


@pytest.mark.parametrize("name", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_a_partly_sliding_qwen_is_refused(name: str) -> None:
    config = {
        **smollm2_config(),
        "architectures": [name],
        "sliding_window": 4096,
        "use_sliding_window": True,
    }
    with pytest.raises(ModelConfigError, match="use_sliding_window"):
        from_hf(config)
    assert from_hf({**config, "use_sliding_window": False}).window == 0


def test_mistral_slides_where_its_config_gives_a_window() -> None:
    config = {**smollm2_config(), "architectures": ["MistralForCausalLM"]}
    assert from_hf({**config, "sliding_window": 4096}).window == 4096
    assert from_hf({**config, "sliding_window": None}).window == 0


@pytest.mark.parametrize(
    ("sizes", "named", "legal"),
    [
        (
            ParallelSizes(2, 2, 2),
            "attn_tp = 2 does not divide 9 attention heads and 3 KV",
            "1, 3, 9",  # on nine ranks each KV head is on three
        ),
        (
            ParallelSizes(3, 3, 5),
            "dense_tp = 5 does not divide an intermediate size of 1536",
            "1, 2, 3, 4, 6",
        ),
    ],
)
def test_sizes_that_do_not_divide_the_model(sizes: ParallelSizes, named: str, legal: str) -> None:
    with pytest.raises(ShardSizeError) as refusal:
        check_sizes(from_hf(smollm2_config()), sizes)
    assert named in refusal.value.message
    assert legal in refusal.value.remedy
