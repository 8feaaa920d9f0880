"""The rewrite of every fused op, by the op's name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tscompile.rewrites.add_rms_norm import ADD_RMS_NORM
from tscompile.rewrites.all_reduce_add_rms_norm import ALL_REDUCE_ADD_RMS_NORM
from tscompile.rewrites.linear_silu_mul import LINEAR_SILU_MUL, SCALED_LINEAR_SILU_MUL
from tscompile.rewrites.qk_norm_rope_kv_write import QK_NORM_ROPE_KV_WRITE
from tscompile.rewrites.reduce_scatter_add_rms_norm import REDUCE_SCATTER_ADD_RMS_NORM
from tscompile.rewrites.reduce_scatter_add_rms_norm_all_gather import (
    REDUCE_SCATTER_ADD_RMS_NORM_ALL_GATHER,
)
from tscompile.rewrites.rewrite import Rewrite
from tscompile.rewrites.rope_kv_write import ROPE_KV_WRITE


def _table(*rewrites: Rewrite) -> Mapping[str, Rewrite]:
    return MappingProxyType({rewrite.op: rewrite for rewrite in rewrites})


COLLECTIVES = _table(
    ALL_REDUCE_ADD_RMS_NORM,
    REDUCE_SCATTER_ADD_RMS_NORM,
    REDUCE_SCATTER_ADD_RMS_NORM_ALL_GATHER,
)
"""Those with communication in them."""

COMPUTE = _table(
    ADD_RMS_NORM,
    LINEAR_SILU_MUL,
    SCALED_LINEAR_SILU_MUL,
    ROPE_KV_WRITE,
    QK_NORM_ROPE_KV_WRITE,
)
"""Those of one rank alone."""

REWRITES: Mapping[str, Rewrite] = MappingProxyType({**COLLECTIVES, **COMPUTE})
