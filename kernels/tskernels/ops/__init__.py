"""The closed table of operators: every op that a model may call and a plan may hold.

T tokens, S sequences. Floating inputs of one op share a dtype unless its docstring says otherwise;
ids, positions, slots and tables are int32 in a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tskernels.op import Op
from tskernels.ops.attention.schema import attention, kv_write
from tskernels.ops.collectives.schema import all_gather, all_reduce, all_to_all, reduce_scatter
from tskernels.ops.elementwise.schema import add, silu_mul
from tskernels.ops.embedding.schema import embedding
from tskernels.ops.exchange.schema import combine, dispatch
from tskernels.ops.fused.schema import (
    add_rms_norm,
    linear_silu_mul,
    qk_norm_rope_kv_write,
    rope_kv_write,
    scaled_linear_silu_mul,
)
from tskernels.ops.fused_collectives.schema import (
    all_reduce_add_rms_norm,
    reduce_scatter_add_rms_norm,
    reduce_scatter_add_rms_norm_all_gather,
)
from tskernels.ops.indexing.schema import mask, permute, select_rows
from tskernels.ops.indexing.schema import slice_ as slice  # noqa: A004 (the op's own name)
from tskernels.ops.linear.schema import linear, scaled_linear
from tskernels.ops.mla.schema import latent_write, mla
from tskernels.ops.moe.schema import experts, route
from tskernels.ops.norm.schema import rms_norm
from tskernels.ops.rotary.schema import rotary, rotary_table
from tskernels.ops.views.schema import flatten, narrow, split, unflatten

__all__ = [
    "OPS",
    "Op",
    "add",
    "add_rms_norm",
    "all_gather",
    "all_reduce",
    "all_reduce_add_rms_norm",
    "all_to_all",
    "attention",
    "combine",
    "dispatch",
    "embedding",
    "experts",
    "flatten",
    "kv_write",
    "latent_write",
    "linear",
    "linear_silu_mul",
    "mask",
    "mla",
    "narrow",
    "permute",
    "qk_norm_rope_kv_write",
    "reduce_scatter",
    "reduce_scatter_add_rms_norm",
    "reduce_scatter_add_rms_norm_all_gather",
    "rms_norm",
    "rope_kv_write",
    "rotary",
    "rotary_table",
    "route",
    "scaled_linear",
    "scaled_linear_silu_mul",
    "select_rows",
    "silu_mul",
    "slice",
    "split",
    "unflatten",
]

_ALL: tuple[Op[..., Any], ...] = (
    embedding,
    linear,
    scaled_linear,
    rms_norm,
    add,
    silu_mul,
    rotary_table,
    rotary,
    kv_write,
    attention,
    latent_write,
    mla,
    route,
    experts,
    dispatch,
    combine,
    select_rows,
    mask,
    slice,
    permute,
    split,
    unflatten,
    flatten,
    narrow,
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    add_rms_norm,
    linear_silu_mul,
    scaled_linear_silu_mul,
    rope_kv_write,
    qk_norm_rope_kv_write,
    all_reduce_add_rms_norm,
    reduce_scatter_add_rms_norm,
    reduce_scatter_add_rms_norm_all_gather,
)

OPS: Mapping[str, Op[..., Any]] = MappingProxyType({op.schema.name: op for op in _ALL})
