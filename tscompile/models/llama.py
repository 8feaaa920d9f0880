"""The Llama architecture: Llama 2 and 3, SmolLM2, Mistral, Qwen2 and Qwen3, by options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from tscompile.ir.mesh import ATTN_KV, ATTN_TP, DENSE_TP
from tscompile.models.annotations import (
    Annotation,
    Boundary,
    CacheLayer,
    ForwardInputs,
    Partial,
    Replicate,
    Shard,
)
from tscompile.models.config import ModelConfig
from tscompile.models.layers import Embedding, Linear, RMSNorm, RotaryTable
from tskernels import ops

C = TypeVar("C", bound=ModelConfig)

FULL = "full"
"""The cache group of layers that keep every token's keys and values."""


class Attention(nn.Module):
    """Grouped-query attention over the paged cache, heads cut over ATTN_TP.

    Where there are more ranks than KV heads, several hold the same one (see `build_mesh`).
    """

    boundary = Boundary(input=Replicate(ATTN_TP), output=Partial(ATTN_TP))

    def __init__(
        self, config: ModelConfig, group: str = FULL, window: int = 0, *, sinks: bool = False
    ) -> None:
        super().__init__()
        hidden, dim = config.hidden, config.head_dim
        rows, columns = Shard(ATTN_TP, dim=0), Shard(ATTN_TP, dim=1)
        keys = Shard(ATTN_KV, dim=0)
        kv, bias = config.kv_heads * dim, config.qkv_bias
        self.q_proj = Linear(hidden, config.heads * dim, bias=bias, placement=rows)
        self.k_proj = Linear(hidden, kv, bias=bias, placement=keys)
        self.v_proj = Linear(hidden, kv, bias=bias, placement=keys)
        self.o_proj = Linear(config.heads * dim, hidden, bias=config.o_bias, placement=columns)
        self.q_norm = RMSNorm(dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.sinks = nn.Parameter(torch.empty(config.heads)) if sinks else None
        self.placements: Mapping[str, Annotation] = {"sinks": Shard(ATTN_TP, dim=0)}
        self.head_dim, self.group, self.window = dim, group, window
        self.scale = dim**-0.5

    def forward(self, x: Tensor, table: Tensor, inputs: ForwardInputs, cache: Tensor) -> Tensor:
        """X [T, H] to [T, H], each sequence attending to its own past."""
        parts = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        query, key, value = (ops.unflatten(part, size=self.head_dim) for part in parts)
        query, key = self.q_norm(query), self.k_norm(key)
        query, key = ops.rotary(query, table), ops.rotary(key, table)
        written = ops.kv_write(key, value, cache, inputs.slot_mapping[self.group])
        mixed = ops.attention(
            query,
            written,
            inputs.block_table[self.group],
            inputs.seq_lens,
            inputs.query_starts,
            self.sinks,
            scale=self.scale,
            window=self.window,
        )
        return self.o_proj(ops.flatten(mixed))


class MLP(nn.Module):
    """SwiGLU, its width cut over DENSE_TP."""

    boundary = Boundary(input=Replicate(DENSE_TP), output=Partial(DENSE_TP))

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, width, bias = config.hidden, config.intermediate, config.mlp_bias
        rows, columns = Shard(DENSE_TP, dim=0), Shard(DENSE_TP, dim=1)
        self.gate_proj = Linear(hidden, width, bias=bias, placement=rows)
        self.up_proj = Linear(hidden, width, bias=bias, placement=rows)
        self.down_proj = Linear(width, hidden, bias=bias, placement=columns)

    def forward(self, x: Tensor) -> Tensor:
        """X [T, H] to [T, H]."""
        return self.down_proj(ops.silu_mul(self.gate_proj(x), self.up_proj(x)))


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP around the residual stream."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config, FULL, config.window)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, table: Tensor, inputs: ForwardInputs, cache: Tensor) -> Tensor:
        """X [T, H] to [T, H]."""
        x = ops.add(x, self.self_attn(self.input_layernorm(x), table, inputs, cache))
        return ops.add(x, self.mlp(self.post_attention_layernorm(x)))


class LlamaModel(nn.Module):
    """Embedding, layers and final norm; rows for the head are selected before the norm."""

    def __init__(self, config: C, make_layer: Callable[[C, int], nn.Module]) -> None:
        super().__init__()
        vocabulary = Shard(ATTN_TP, dim=0, padded=True)
        self.embed_tokens = Embedding(config.vocab_size, config.hidden, placement=vocabulary)
        self.rotary_emb = RotaryTable(config.rope, config.head_dim)
        self.layers = nn.ModuleList(make_layer(config, index) for index in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)

    def forward(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        """Hidden states [rows, H]."""
        x = self.embed_tokens(inputs.token_ids)
        table = self.rotary_emb(inputs.positions)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, table, inputs, cache)
        if inputs.logit_rows is not None:
            x = ops.select_rows(x, inputs.logit_rows)
        return self.norm(x)


class LlamaForCausalLM(nn.Module):
    """The decoder with its LM head, which may share the embedding's weight.

    `make_layer` gives the layer of an index; each is called as `DecoderLayer` is.
    """

    def __init__(self, config: C, make_layer: Callable[[C, int], nn.Module] = DecoderLayer) -> None:
        super().__init__()
        self.config: ModelConfig = config
        self.model = LlamaModel(config, make_layer)
        vocabulary = Shard(ATTN_TP, dim=0, padded=True)
        self.lm_head = Linear(config.hidden, config.vocab_size, bias=False, placement=vocabulary)
        if config.tied_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        layer = CacheLayer(
            FULL, config.kv_heads, config.head_dim, config.window, Shard(ATTN_KV, dim=2)
        )
        self.cache_layers = (layer,) * config.layers

    def forward(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        """Logits [rows, V]; `caches` holds one pool a layer, which is written."""
        return self.lm_head(self.model(inputs, caches))
