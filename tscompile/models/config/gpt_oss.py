"""Configurations of GPT-OSS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tscompile.ir.errors import ModelConfigError
from tscompile.models.config.base import (
    ModelConfig,
    read_norm_eps,
    read_size,
    refuse_unsupported,
)
from tscompile.models.config.moe import MoeConfig
from tscompile.models.rope import read_rope

SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class GptOssConfig(ModelConfig):
    """A mixture of experts (`moe`) in every layer; attention with sinks, biases everywhere.

    `windows` holds each layer's sliding window in tokens, 0 where it sees all.
    """

    windows: tuple[int, ...]


def read_gpt_oss(config: Mapping[str, object], architecture: str) -> GptOssConfig:
    """Sizes and options of GPT-OSS; ModelConfigError for what is missing or not supported."""
    refuse_unsupported(config, layer_types=frozenset({SLIDING, FULL}))
    _refuse_quantization(config)
    heads, width = read_size(config, "num_attention_heads"), read_size(config, "intermediate_size")
    bias = bool(config.get("attention_bias", True))
    return GptOssConfig(
        architecture=architecture,
        vocab_size=read_size(config, "vocab_size"),
        hidden=read_size(config, "hidden_size"),
        intermediate=width,
        layers=read_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=read_size(config, "num_key_value_heads"),
        head_dim=read_size(config, "head_dim", read_size(config, "hidden_size") // heads),
        norm_eps=read_norm_eps({"rms_norm_eps": 1e-5, **config}),
        max_positions=read_size(config, "max_position_embeddings", 131072),
        rope=read_rope(config),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=bias,
        o_bias=bias,
        moe=MoeConfig(
            experts=read_size(config, "num_local_experts"),
            top_k=read_size(config, "num_experts_per_tok"),
            width=width,
            scoring="softmax_topk",
            biases=True,
            activation="swiglu",
            alpha=_number(config, "swiglu_alpha", 1.702),
            limit=_number(config, "swiglu_limit", 7.0),
        ),
        windows=_windows(config),
    )


def _windows(config: Mapping[str, object]) -> tuple[int, ...]:
    """By `layer_types`; without it every other layer slides, the first one too."""
    layers, window = read_size(config, "num_hidden_layers"), read_size(config, "sliding_window")
    alternating = [FULL if index % 2 else SLIDING for index in range(layers)]
    types = cast("list[str]", config.get("layer_types") or alternating)
    if len(types) != layers:
        raise ModelConfigError(
            f"layer_types names {len(types)} layers, num_hidden_layers is {layers}",
            remedy="name the kind of every layer",
            where="layer_types",
        )
    return tuple(window if kind == SLIDING else 0 for kind in types)


def _number(config: Mapping[str, object], key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ModelConfigError(
            f"{key} = {value!r} is no positive number",
            remedy=f"give {key} in the model's config",
            where=key,
        )
    return float(value)


def _refuse_quantization(config: Mapping[str, object]) -> None:
    """MXFP4 experts are dequantized as they are read; nothing else is."""
    given = cast("Mapping[str, object] | None", config.get("quantization_config"))
    if given is not None and given.get("quant_method") != "mxfp4":
        raise ModelConfigError(
            f"quantization_config asks for {given.get('quant_method')}, which is not supported",
            remedy="use a checkpoint in bfloat16 or MXFP4",
            where="quantization_config",
        )
