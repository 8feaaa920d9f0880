"""GPT-OSS: attention with sinks, every other layer in a sliding window, experts in all of them."""

from __future__ import annotations

from torch import Tensor, nn

from tscompile.ir.mesh import ATTN_KV, MOE_TP_EP
from tscompile.models.annotations import CacheLayer, ForwardInputs, Replicate, Shard
from tscompile.models.config.gpt_oss import GptOssConfig
from tscompile.models.config.moe import MoeConfig
from tscompile.models.layers import Linear, RMSNorm
from tscompile.models.llama import FULL, Attention, LlamaForCausalLM
from tscompile.models.moe import Experts, routed
from tskernels import ops

WINDOW = "window"
"""The cache group of layers that keep only the keys and values of a sliding window."""


class GptOssMlp(nn.Module):
    """A linear router and the experts that it chooses; no boundary is annotated."""

    def __init__(self, hidden: int, moe: MoeConfig) -> None:
        super().__init__()
        self.router = Linear(hidden, moe.experts, bias=True, placement=Replicate(MOE_TP_EP))
        self.experts = Experts(hidden, moe)
        self.moe = moe

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        """X [T, H] to [T, H]; `slots` [T] of a cache group tell padding rows."""
        weights, ids = routed(self.moe, self.router(x), slots)
        return self.experts(x, ids, weights)


class GptOssLayer(nn.Module):
    """Pre-norm attention and experts around the residual stream."""

    def __init__(self, config: GptOssConfig, index: int) -> None:
        super().__init__()
        assert config.moe is not None, "GPT-OSS has experts"
        window = config.windows[index]
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config, WINDOW if window else FULL, window, sinks=True)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = GptOssMlp(config.hidden, config.moe)

    def forward(self, x: Tensor, table: Tensor, inputs: ForwardInputs, cache: Tensor) -> Tensor:
        """X [T, H] to [T, H]."""
        x = ops.add(x, self.self_attn(self.input_layernorm(x), table, inputs, cache))
        slots = inputs.slot_mapping[self.self_attn.group]
        return ops.add(x, self.mlp(self.post_attention_layernorm(x), slots))


class GptOssForCausalLM(LlamaForCausalLM):
    """The decoder; its layers' caches are in two groups."""

    def __init__(self, config: GptOssConfig) -> None:
        super().__init__(config, GptOssLayer)
        self.cache_layers = tuple(
            CacheLayer(
                WINDOW if window else FULL,
                config.kv_heads,
                config.head_dim,
                window,
                Shard(ATTN_KV, dim=2),
            )
            for window in config.windows
        )
