"""Configurations of Qwen3-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import cast

from tscompile.models.config.base import ModelConfig, read_size
from tscompile.models.config.llama import read_llama
from tscompile.models.config.moe import MoeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3MoeConfig(ModelConfig):
    """Qwen3's decoder, its MLP a mixture of experts but in `dense_layers`."""

    moe: MoeConfig
    dense_layers: frozenset[int] = frozenset()


def read_qwen3_moe(config: Mapping[str, object], architecture: str) -> Qwen3MoeConfig:
    """Sizes and options of a Qwen3-MoE decoder; ModelConfigError for what is missing."""
    base = read_llama(config, architecture)
    key = "num_experts" if "num_experts" in config else "num_local_experts"
    moe = MoeConfig(
        experts=read_size(config, key),
        top_k=read_size(config, "num_experts_per_tok"),
        width=read_size(config, "moe_intermediate_size"),
        normalize=bool(config.get("norm_topk_prob", False)),
    )
    step = read_size(config, "decoder_sparse_step", 1)
    listed = frozenset(cast("list[int]", config.get("mlp_only_layers") or []))
    dense = {i for i in range(base.layers) if i in listed or (i + 1) % step}
    shared = {field.name: getattr(base, field.name) for field in fields(base)}
    return Qwen3MoeConfig(**(shared | {"moe": moe}), dense_layers=frozenset(dense))
