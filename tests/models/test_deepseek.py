"""DeepSeek V3's module: options against transformers, chunks through pages, what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import Chunk, batch_inputs, eager_caches, forward_inputs, worst_position
from checkpoints import TinyHf, load_reference, save_tiny_hf, tiny_config
from models.test_models_transformers import LIMIT, check, load, prompt, reference_logits

from tscompile.ir.errors import ModelConfigError
from tscompile.models.config import from_hf
from tscompile.models.config.deepseek import DeepseekConfig

PAGE_SIZE = 8

VARIANTS: dict[str, dict[str, Any]] = {
    "queries-without-bottleneck": {"q_lora_rank": None},
    "halves": {"rope_interleave": False},
    "biases": {"attention_bias": True},
    "one-group": {"n_group": 1, "topk_group": 1},
    "weights-not-normalized": {"norm_topk_prob": False},
    "no-dense-layer": {"first_k_dense_replace": 0},
    "plain-rope": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_options_agree_with_transformers(variant: str, tmp_path: Path) -> None:
    check(save_tiny_hf("deepseek", tmp_path, **VARIANTS[variant]))


def test_chunks_and_decodes_agree_with_transformers(tiny_hf: TinyHf) -> None:
    """Two sequences: prefill in parts beside decodes, then decodes, all through paged latents."""
    directory = tiny_hf("deepseek")
    reference = load_reference(directory)
    model = load(directory, reference)
    prompts = (prompt(37, 1), prompt(12, 2))
    pages = ((3, 9, 1, 7, 4), (8, 2))
    caches = eager_caches(model, pages=10, page_size=PAGE_SIZE, dtype=torch.float32)
    got: list[list[torch.Tensor]] = [[], []]
    done = (0, 0)
    for ends in ((13, 0), (30, 9), (35, 10), (36, 11), (37, 12)):
        chunks = [
            Chunk(tokens[start:end], start, owned)
            for tokens, start, end, owned in zip(prompts, done, ends, pages, strict=True)
        ]
        inputs = batch_inputs(
            chunks,
            tokens=32,
            sequences=3,
            page_size=PAGE_SIZE,
            max_pages=5,
            groups=["latent"],
        )
        with torch.no_grad():
            logits = model(forward_inputs(inputs), caches)
        first = 0
        for rows, chunk in zip(got, chunks, strict=True):
            rows.append(logits[first : first + len(chunk.tokens)])
            first += len(chunk.tokens)
        done = ends
    for tokens, rows in zip(prompts, got, strict=True):
        assert worst_position(torch.cat(rows), reference_logits(reference, tokens)) < LIMIT


def hf_config(**changes: Any) -> dict[str, Any]:
    config = tiny_config("deepseek").to_dict() | {"architectures": ["DeepseekV3ForCausalLM"]}
    return {k: v for k, v in (config | changes).items() if v is not ...}


def test_the_published_config_is_read() -> None:
    """DeepSeek-V3's config.json, without its quantization, and with the keys of transformers 4."""
    published = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 3,
        "hidden_act": "silu",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "n_group": 8,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
        },
        "rope_theta": 10000,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "tie_word_embeddings": False,
        "topk_group": 4,
        "topk_method": "noaux_tc",
        "v_head_dim": 128,
        "vocab_size": 129280,
    }
    config = from_hf(published)
    assert isinstance(config, DeepseekConfig)
    assert (config.heads, config.q_rank, config.kv_rank) == (128, 1536, 512)
    assert (config.nope_dim, config.head_dim, config.value_dim) == (128, 64, 128)
    assert config.shared_experts == 1
    moe = config.moe
    assert moe is not None
    assert moe.dense_layers == {0, 1, 2}
    assert (moe.experts, moe.top_k, moe.groups, moe.top_groups, moe.scale) == (256, 8, 8, 4, 2.5)
    assert (moe.width, moe.scoring, moe.normalize) == (2048, "sigmoid", True)
    assert config.scale == pytest.approx(192**-0.5 * (0.1 * math.log(40) + 1) ** 2)
    assert config.rope.table_scale == 1.0
    assert config.interleaved
    # Kimi K2 differs in sizes only, and in the name of the type.
    kimi = {"model_type": "kimi_k2", "n_group": 1, "topk_group": 1, "n_routed_experts": 384}
    assert from_hf({**published, **kimi}).architecture == "DeepseekV3ForCausalLM"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax' is not supported"),
        ({"topk_method": "greedy"}, "topk_method = 'greedy' is not supported"),
        ({"moe_layer_freq": 2}, "moe_layer_freq = 2 is not supported"),
        ({"n_group": 5}, "n_routed_experts = 12 is no multiple of n_group = 5"),
        ({"kv_lora_rank": ...}, "kv_lora_rank = None is no positive integer"),
        ({"routed_scaling_factor": "x"}, "routed_scaling_factor = 'x' is no number"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelConfigError, match=told):
        from_hf(hf_config(**changes))


def test_parameters_are_named_as_in_the_checkpoint(tiny_hf: TinyHf) -> None:
    directory = tiny_hf("deepseek")
    index = json.loads((directory / "config.json").read_text())
    assert index["architectures"] == ["DeepseekV3ForCausalLM"]
    model = load(directory, load_reference(directory))
    assert isinstance(model, torch.nn.Module)
    names = {name for name, _ in model.named_parameters()}
    assert "model.layers.1.mlp.gate.e_score_correction_bias" in names
    assert "model.layers.0.mlp.down_proj.weight" in names
    assert "model.layers.2.mlp.shared_experts.up_proj.weight" in names
