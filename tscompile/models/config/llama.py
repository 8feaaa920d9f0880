"""Configurations of the Llama architecture and its relatives: Mistral, Qwen2, Qwen3."""

from __future__ import annotations

from collections.abc import Mapping

from tscompile.ir.errors import ModelConfigError
from tscompile.models.config.base import (
    ModelConfig,
    read_norm_eps,
    read_size,
    read_unquantized,
    read_weight_blocks,
    refuse_unsupported,
)
from tscompile.models.rope import read_rope


def read_llama(config: Mapping[str, object], architecture: str) -> ModelConfig:
    """Sizes and options of a dense decoder with grouped-query attention."""
    window = {"sliding_attention"} if _uses_window(config) else set[str]()
    refuse_unsupported(config, layer_types=frozenset({"full_attention", *window}))
    heads = read_size(config, "num_attention_heads")
    hidden = read_size(config, "hidden_size")
    llama, qwen3 = (architecture.startswith(family) for family in ("Llama", "Qwen3"))
    attention_bias = (llama or qwen3) and bool(config.get("attention_bias", False))
    result = ModelConfig(
        architecture=architecture,
        vocab_size=read_size(config, "vocab_size"),
        hidden=hidden,
        intermediate=read_size(config, "intermediate_size"),
        layers=read_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=read_size(config, "num_key_value_heads", heads if llama else None),
        head_dim=read_size(config, "head_dim", _default_head_dim(architecture, config)),
        norm_eps=read_norm_eps(config),
        max_positions=read_size(config, "max_position_embeddings", 2048),
        rope=read_rope(config),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "Qwen2ForCausalLM" or attention_bias,
        o_bias=attention_bias,
        mlp_bias=llama and bool(config.get("mlp_bias", False)),
        qk_norm=qwen3,
        window=_window(architecture, config),
        weight_blocks=read_weight_blocks(config),
        unquantized=read_unquantized(config),
    )
    if result.heads % result.kv_heads:
        raise ModelConfigError(
            f"num_attention_heads = {result.heads} is no multiple of "
            f"num_key_value_heads = {result.kv_heads}",
            remedy="check the config: each KV head must serve equally many query heads",
            where="num_key_value_heads",
        )
    return result


def _uses_window(config: Mapping[str, object]) -> bool:
    return bool(config.get("sliding_window")) and bool(config.get("use_sliding_window", True))


def _window(architecture: str, config: Mapping[str, object]) -> int:
    """Mistral's window holds for every layer; Qwen's, switched on by a flag, only for some."""
    if architecture == "MistralForCausalLM" and _uses_window(config):
        return read_size(config, "sliding_window")
    if architecture.startswith("Qwen") and config.get("use_sliding_window", False):
        raise ModelConfigError(
            f"use_sliding_window = True is not supported for {architecture}",
            remedy="use a checkpoint whose use_sliding_window is false",
            where="use_sliding_window",
        )
    return 0


def _default_head_dim(architecture: str, config: Mapping[str, object]) -> int:
    if architecture == "Qwen3ForCausalLM":
        return 128
    hidden, heads = read_size(config, "hidden_size"), read_size(config, "num_attention_heads")
    if hidden % heads and config.get("head_dim") is None:
        raise ModelConfigError(
            f"hidden_size = {hidden} is no multiple of num_attention_heads = {heads}, "
            "and head_dim is not given",
            remedy="give head_dim in the config",
            where="head_dim",
        )
    return hidden // heads
