"""Configurations of DeepSeek V3 and R1, and of Kimi K2, whose text model is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tscompile.ir.errors import ModelConfigError
from tscompile.models.config.base import (
    ModelConfig,
    read_norm_eps,
    read_size,
    read_weight_blocks,
    refuse_unsupported,
)
from tscompile.models.config.moe import MoeConfig
from tscompile.models.rope import attention_scale, read_rope


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepseekConfig(ModelConfig):
    """A decoder with latent attention and a mixture of experts (`moe`) behind some dense layers.

    Queries come through a bottleneck of `q_rank` (0: directly), keys and values of all heads
    through latents of `kv_rank`. A head's query and key have `nope_dim` entries without position
    and `head_dim` rotated ones, its value `value_dim`. `scale` multiplies attention scores.
    `interleaved` says how rotary pairs lie in a head (see `ops.rotary`). Sparse layers add
    `shared_experts` networks of an expert's width that every token passes.
    """

    q_rank: int
    kv_rank: int
    nope_dim: int
    value_dim: int
    scale: float
    interleaved: bool
    shared_experts: int


def read_deepseek(config: Mapping[str, object], architecture: str) -> DeepseekConfig:
    """Sizes and options; ModelConfigError for what is missing, malformed or not supported."""
    refuse_unsupported(config, layer_types=frozenset({"full_attention"}))
    _only(config, "topk_method", "noaux_tc")
    _only(config, "scoring_func", "sigmoid")
    _only(config, "moe_layer_freq", 1)
    heads = read_size(config, "num_attention_heads")
    nope, turned = read_size(config, "qk_nope_head_dim"), read_size(config, "qk_rope_head_dim")
    bias = bool(config.get("attention_bias", False))
    rope = read_rope(config)
    return DeepseekConfig(
        architecture=architecture,
        vocab_size=read_size(config, "vocab_size"),
        hidden=read_size(config, "hidden_size"),
        intermediate=read_size(config, "intermediate_size"),
        layers=read_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=heads,
        head_dim=turned,
        norm_eps=read_norm_eps(config),
        max_positions=read_size(config, "max_position_embeddings", 4096),
        rope=rope,
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=bias,
        o_bias=bias,
        moe=_moe(config),
        weight_blocks=read_weight_blocks(config),
        draft_layers=_count(config, "num_nextn_predict_layers"),
        q_rank=0 if config.get("q_lora_rank") is None else read_size(config, "q_lora_rank"),
        kv_rank=read_size(config, "kv_lora_rank"),
        nope_dim=nope,
        value_dim=read_size(config, "v_head_dim"),
        scale=(nope + turned) ** -0.5 * attention_scale(config, rope),
        interleaved=bool(config.get("rope_interleave", True)),
        shared_experts=_count(config, "n_shared_experts"),
    )


def _moe(config: Mapping[str, object]) -> MoeConfig:
    experts, groups = read_size(config, "n_routed_experts"), read_size(config, "n_group", 1)
    if experts % groups:
        raise ModelConfigError(
            f"n_routed_experts = {experts} is no multiple of n_group = {groups}",
            remedy="check the config: every group has equally many experts",
            where="n_group",
        )
    scale = config.get("routed_scaling_factor", 1.0)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise ModelConfigError(
            f"routed_scaling_factor = {scale!r} is no number",
            remedy="give routed_scaling_factor in the model's config",
            where="routed_scaling_factor",
        )
    return MoeConfig(
        experts=experts,
        top_k=read_size(config, "num_experts_per_tok"),
        width=read_size(config, "moe_intermediate_size"),
        scoring="sigmoid",
        normalize=bool(config.get("norm_topk_prob", True)),
        groups=groups,
        top_groups=read_size(config, "topk_group", groups),
        scale=float(scale),
        dense_layers=frozenset(range(_count(config, "first_k_dense_replace"))),
    )


def _count(config: Mapping[str, object], key: str) -> int:
    """A size that may be 0 or absent."""
    return 0 if config.get(key) in (None, 0) else read_size(config, key)


def _only(config: Mapping[str, object], key: str, value: object) -> None:
    if config.get(key, value) != value:
        raise ModelConfigError(
            f"{key} = {config[key]!r} is not supported",
            remedy=f"use a checkpoint whose {key} is {value!r}",
            where=key,
        )
