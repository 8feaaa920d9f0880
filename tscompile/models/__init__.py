"""Models in plain single-device PyTorch with placement annotations."""

from __future__ import annotations

from torch import nn

from tscompile.models.annotations import CausalLM
from tscompile.models.config import ModelConfig
from tscompile.models.llama import LlamaForCausalLM

__all__ = ["CausalLM", "ModelConfig", "build"]


def build(config: ModelConfig) -> CausalLM:
    """The module of `config.architecture`, its parameters named as in the HF checkpoint.

    Inside `with torch.device("meta")` no weight exists; constants (inverse RoPE frequencies) do.
    """
    model: CausalLM = LlamaForCausalLM(config)
    assert isinstance(model, nn.Module)
    return model
