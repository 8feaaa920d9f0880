"""DeepSeek V3 and R1, and Kimi K2's text model: latent attention, shared and routed experts."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from tscompile.ir.mesh import ATTN_TP
from tscompile.models.annotations import (
    Boundary,
    CacheLayer,
    ForwardInputs,
    Partial,
    Replicate,
    Shard,
)
from tscompile.models.config.deepseek import DeepseekConfig
from tscompile.models.config.moe import MoeConfig
from tscompile.models.layers import Linear, RMSNorm
from tscompile.models.llama import MLP, LlamaForCausalLM
from tscompile.models.moe import CorrectedGate, Experts
from tskernels import ops

LATENT = "latent"
"""The cache group of layers that keep one latent a token for all heads."""

_BOTTLENECK_EPS = 1e-6
"""Epsilon of the norms inside attention, which no config gives."""


class LatentAttention(nn.Module):
    """Attention to latents, heads cut over ATTN_TP; what has no heads is done on every rank."""

    boundary = Boundary(input=Replicate(ATTN_TP), output=Partial(ATTN_TP))

    def __init__(self, config: DeepseekConfig) -> None:
        super().__init__()
        whole, rows = Replicate(ATTN_TP), Shard(ATTN_TP, dim=0)
        hidden, bias, rank = config.hidden, config.qkv_bias, config.kv_rank
        self.nope, self.turned, self.rank = config.nope_dim, config.head_dim, rank
        queries = config.heads * (self.nope + self.turned)
        if config.q_rank:
            self.q_a_proj = Linear(hidden, config.q_rank, bias=bias, placement=whole)
            self.q_a_layernorm = RMSNorm(config.q_rank, _BOTTLENECK_EPS)
            self.q_b_proj = Linear(config.q_rank, queries, bias=False, placement=rows)
        else:
            self.q_proj = Linear(hidden, queries, bias=False, placement=rows)
        self.kv_a_proj_with_mqa = Linear(hidden, rank + self.turned, bias=bias, placement=whole)
        self.kv_a_layernorm = RMSNorm(rank, _BOTTLENECK_EPS)
        made = config.heads * (self.nope + config.value_dim)
        self.kv_b_proj = Linear(rank, made, bias=False, placement=rows)
        self.o_proj = Linear(
            config.heads * config.value_dim,
            hidden,
            bias=config.o_bias,
            placement=Shard(ATTN_TP, dim=1),
        )
        self.bottleneck, self.scale = config.q_rank > 0, config.scale
        self.interleaved = config.interleaved

    def forward(self, x: Tensor, table: Tensor, inputs: ForwardInputs, cache: Tensor) -> Tensor:
        """X [T, H] to [T, H], each sequence attending to its own past."""
        query = ops.unflatten(self._queries(x), size=self.nope + self.turned)
        both = self.kv_a_proj_with_mqa(x)
        latent = self.kv_a_layernorm(ops.narrow(both, dim=1, start=0, size=self.rank))
        shared = ops.narrow(both, dim=1, start=self.rank, size=self.turned)
        key = self._turn(ops.unflatten(shared, size=self.turned), table)
        mixed = ops.mla(
            ops.narrow(query, dim=2, start=0, size=self.nope),
            self._turn(ops.narrow(query, dim=2, start=self.nope, size=self.turned), table),
            ops.latent_write(latent, key, cache, inputs.slot_mapping[LATENT]),
            self.kv_b_proj.weight,
            inputs.block_table[LATENT],
            inputs.seq_lens,
            inputs.query_starts,
            scale=self.scale,
        )
        return self.o_proj(ops.flatten(mixed))

    def _queries(self, x: Tensor) -> Tensor:
        """[T, heads * (nope + turned)]."""
        if not self.bottleneck:
            return self.q_proj(x)
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))

    def _turn(self, x: Tensor, table: Tensor) -> Tensor:
        return ops.rotary(x, table, interleaved=self.interleaved)


class DeepseekMoe(nn.Module):
    """Routed experts, and shared ones as one MLP over DENSE_TP."""

    def __init__(self, config: DeepseekConfig, moe: MoeConfig) -> None:
        super().__init__()
        self.gate = CorrectedGate(config.hidden, moe)
        self.experts = Experts(config.hidden, moe)
        shared = config.shared_experts * moe.width
        self.shared_experts = MLP(replace(config, intermediate=shared)) if shared else None

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        """X [T, H] to [T, H]; `slots` [T] of a cache group tell padding rows."""
        weights, ids = self.gate(x, slots)
        mixed = self.experts(x, ids, weights)
        return mixed if self.shared_experts is None else ops.add(mixed, self.shared_experts(x))


class DeepseekLayer(nn.Module):
    """Pre-norm attention and an MLP, dense in the first layers, around the residual stream."""

    def __init__(self, config: DeepseekConfig, index: int) -> None:
        super().__init__()
        moe = config.moe
        assert moe is not None, "a DeepSeek config has experts"
        self.sparse = index not in moe.dense_layers
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = LatentAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = DeepseekMoe(config, moe) if self.sparse else MLP(config)

    def forward(self, x: Tensor, table: Tensor, inputs: ForwardInputs, cache: Tensor) -> Tensor:
        """X [T, H] to [T, H]."""
        x = ops.add(x, self.self_attn(self.input_layernorm(x), table, inputs, cache))
        rows = (inputs.slot_mapping[LATENT],) if self.sparse else ()
        return ops.add(x, self.mlp(self.post_attention_layernorm(x), *rows))


class DeepseekForCausalLM(LlamaForCausalLM):
    """The decoder; each layer's cache holds latents, whole on every rank of a replica."""

    def __init__(self, config: DeepseekConfig) -> None:
        super().__init__(config, DeepseekLayer)
        width = config.kv_rank + config.head_dim
        layer = CacheLayer(LATENT, 1, width, 0, Replicate(ATTN_TP), planes=1)
        self.cache_layers = (layer,) * config.layers
