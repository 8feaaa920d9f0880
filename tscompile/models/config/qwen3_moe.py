"""Configurations of Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from tscompile.models.config.base import ModelConfig, read_size
from tscompile.models.config.llama import read_llama
from tscompile.models.config.moe import MoeConfig


def read_qwen3_moe(config: Mapping[str, object], architecture: str) -> ModelConfig:
    """Sizes and options of a Qwen3-MoE decoder; ModelConfigError for what is missing."""
    base = read_llama(config, architecture)
    step = read_size(config, "decoder_sparse_step", 1)
    listed = cast("list[int]", config.get("mlp_only_layers") or [])
    dense = {i for i in range(base.layers) if i in listed or (i + 1) % step}
    moe = MoeConfig(
        experts=read_size(
            config, "num_experts" if "num_experts" in config else "num_local_experts"
        ),
        top_k=read_size(config, "num_experts_per_tok"),
        width=read_size(config, "moe_intermediate_size"),
        normalize=bool(config.get("norm_topk_prob", False)),
        dense_layers=frozenset(dense),
    )
    return replace(base, moe=moe)
