"""Model configurations: read from a Hugging Face `config.json`, checked, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tscompile.ir.errors import ModelConfigError
from tscompile.models.rope import RopeScaling, read_rope

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and options of a Llama-architecture decoder.

    `window` is the sliding window in tokens that every layer uses, or 0. `qkv_bias`, `o_bias` and
    `mlp_bias` say which linears have biases; `qk_norm` normalises each query and key head.
    """

    architecture: str
    vocab_size: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    max_positions: int
    rope: RopeScaling
    tied_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    window: int = 0


def from_hf(config: Mapping[str, object]) -> ModelConfig:
    """The configuration that `config.json` describes, by its `architectures` entry.

    Raises ModelConfigError naming the key for an unknown architecture, a missing or malformed
    size, or an option that this compiler does not support.
    """
    architecture = _architecture(config)
    _refuse_unsupported(config)
    heads = _size(config, "num_attention_heads")
    hidden = _size(config, "hidden_size")
    llama, qwen3 = (architecture.startswith(family) for family in ("Llama", "Qwen3"))
    attention_bias = (llama or qwen3) and bool(config.get("attention_bias", False))
    result = ModelConfig(
        architecture=architecture,
        vocab_size=_size(config, "vocab_size"),
        hidden=hidden,
        intermediate=_size(config, "intermediate_size"),
        layers=_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", heads if llama else None),
        head_dim=_size(config, "head_dim", _default_head_dim(architecture, config)),
        norm_eps=_norm_eps(config),
        max_positions=_size(config, "max_position_embeddings", 2048),
        rope=read_rope(config),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "Qwen2ForCausalLM" or attention_bias,
        o_bias=attention_bias,
        mlp_bias=llama and bool(config.get("mlp_bias", False)),
        qk_norm=qwen3,
        window=_window(architecture, config),
    )
    if result.heads % result.kv_heads:
        raise ModelConfigError(
            f"num_attention_heads = {result.heads} is no multiple of "
            f"num_key_value_heads = {result.kv_heads}",
            remedy="check the config: each KV head must serve equally many query heads",
            where="num_key_value_heads",
        )
    return result


def _architecture(config: Mapping[str, object]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or len(cast("list[object]", names)) != 1:
        raise ModelConfigError(
            f"architectures is {names!r}, not a list of one name",
            remedy=f'set "architectures" to one of {", ".join(ARCHITECTURES)}',
            where="architectures",
        )
    name = str(cast("list[object]", names)[0])
    if name not in ARCHITECTURES:
        raise ModelConfigError(
            f"the architecture {name} is not supported",
            remedy=f"supported architectures: {', '.join(ARCHITECTURES)}",
            where="architectures",
        )
    return name


def _refuse_unsupported(config: Mapping[str, object]) -> None:
    """Options that would change the result and that no module here implements."""
    only: Mapping[str, tuple[object, ...]] = {
        "hidden_act": ("silu", "swish"),
        "pruned_heads": ({}, []),
        "quantization_config": (),
        "pretraining_tp": (1, 0),
        "layer_types": (),
        "add_cross_attention": (False,),
        "is_encoder_decoder": (False,),
    }
    for key, allowed in only.items():
        value = config.get(key)
        if value is None or value in allowed:
            continue
        if key == "layer_types" and set(cast("list[str]", value)) <= {
            "full_attention",
            "sliding_attention" if _uses_window(config) else "full_attention",
        }:
            continue
        shown = ", ".join(repr(a) for a in allowed) or "none"
        raise ModelConfigError(
            f"{key} = {value!r} is not supported",
            remedy=f"use a checkpoint with another {key}; supported values: {shown}",
            where=key,
        )


def _uses_window(config: Mapping[str, object]) -> bool:
    return bool(config.get("sliding_window")) and bool(config.get("use_sliding_window", True))


def _window(architecture: str, config: Mapping[str, object]) -> int:
    """Mistral's window holds for every layer; Qwen's, switched on by a flag, only for some."""
    if architecture == "MistralForCausalLM" and _uses_window(config):
        return _size(config, "sliding_window")
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
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    if hidden % heads and config.get("head_dim") is None:
        raise ModelConfigError(
            f"hidden_size = {hidden} is no multiple of num_attention_heads = {heads}, "
            "and head_dim is not given",
            remedy="give head_dim in the config",
            where="head_dim",
        )
    return hidden // heads


def _size(config: Mapping[str, object], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ModelConfigError(
            f"{key} = {value!r} is no positive integer",
            remedy=f"give {key} in the model's config",
            where=key,
        )
    return value


def _norm_eps(config: Mapping[str, object]) -> float:
    value = config.get("rms_norm_eps", 1e-6)
    if not isinstance(value, float) or value <= 0:
        raise ModelConfigError(
            f"rms_norm_eps = {value!r} is no positive number",
            remedy="give rms_norm_eps in the model's config",
            where="rms_norm_eps",
        )
    return value
