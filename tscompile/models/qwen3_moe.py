"""Qwen3-MoE: Qwen3's decoder with a mixture of experts in place of most MLPs."""

from __future__ import annotations

from torch import Tensor, nn

from tscompile.models.annotations import ForwardInputs
from tscompile.models.config import ModelConfig
from tscompile.models.config.moe import MoeConfig
from tscompile.models.layers import RMSNorm
from tscompile.models.llama import FULL, Attention, DecoderLayer, LlamaForCausalLM
from tscompile.models.moe import SparseMoe
from tskernels import ops


class Qwen3MoeLayer(nn.Module):
    """Pre-norm attention and mixture of experts around the residual stream."""

    def __init__(self, config: ModelConfig, moe: MoeConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = SparseMoe(config.hidden, moe)

    def forward(self, x: Tensor, table: Tensor, inputs: ForwardInputs, cache: Tensor) -> Tensor:
        """X [T, H] to [T, H]."""
        x = ops.add(x, self.self_attn(self.input_layernorm(x), table, inputs, cache))
        mixed = self.mlp(self.post_attention_layernorm(x), inputs.slot_mapping[FULL])
        return ops.add(x, mixed)


class Qwen3MoeForCausalLM(LlamaForCausalLM):
    """The decoder; dense layers are Qwen3's own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, _layer)


def _layer(config: ModelConfig, index: int) -> nn.Module:
    moe = config.moe
    assert moe is not None, "a Qwen3-MoE config has experts"
    if index in moe.dense_layers:
        return DecoderLayer(config, index)
    return Qwen3MoeLayer(config, moe)
