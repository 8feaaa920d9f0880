"""Models in plain single-device PyTorch with placement annotations."""

from __future__ import annotations

import torch
from torch import nn

from tscompile.models.annotations import CacheLayer, CausalLM
from tscompile.models.blocks import quantize
from tscompile.models.config import ModelConfig
from tscompile.models.config.deepseek import DeepseekConfig
from tscompile.models.config.gpt_oss import GptOssConfig
from tscompile.models.deepseek import DeepseekForCausalLM
from tscompile.models.gpt_oss import GptOssForCausalLM
from tscompile.models.llama import LlamaForCausalLM
from tscompile.models.qwen3_moe import Qwen3MoeForCausalLM

__all__ = ["CausalLM", "ModelConfig", "build", "cache_layers"]


def build(config: ModelConfig) -> CausalLM:
    """The module of `config.architecture`, its parameters named as in the HF checkpoint.

    Inside `with torch.device("meta")` no weight exists; constants (inverse RoPE frequencies) do.
    """
    model: CausalLM = _build(config)
    assert isinstance(model, nn.Module)
    quantize(model, config)
    return model


def cache_layers(config: ModelConfig) -> tuple[CacheLayer, ...]:
    """The caches of the module of `config`, one a layer."""
    with torch.device("meta"):
        return build(config).cache_layers


def _build(config: ModelConfig) -> CausalLM:
    match config:
        case DeepseekConfig():
            return DeepseekForCausalLM(config)
        case GptOssConfig():
            return GptOssForCausalLM(config)
        case ModelConfig(architecture="Qwen3MoeForCausalLM"):
            return Qwen3MoeForCausalLM(config)
        case _:
            return LlamaForCausalLM(config)
