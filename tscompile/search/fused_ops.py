"""The fused op of each kind of fused strategy, and linears that one packed product computes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SCATTER = "reduce_scatter_add_rms_norm"

_REDUCTIONS = {
    "all_reduce": "all_reduce_add_rms_norm",
    "reduce_scatter": _SCATTER,
    "reduce_scatter+all_gather": f"{_SCATTER}_all_gather",
    "reduce_scatter+all_gather_both": f"{_SCATTER}_all_gather",
}

REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        f"{name}+{first}+rms_norm": op
        for name, op in _REDUCTIONS.items()
        for first in ("add", "identity")
    }
)
"""A sum that is due, with or without residual, reduced in the kernel of its norm."""

CHAINS: Mapping[str, str] = MappingProxyType(
    {
        "add+rms_norm": "add_rms_norm",
        "linear+linear+silu_mul": "linear_silu_mul",
        "scaled_linear+scaled_linear+silu_mul": "scaled_linear_silu_mul",
        "rotary+rotary+kv_write": "rope_kv_write",
        "rms_norm+rms_norm+rotary+rotary+kv_write": "qk_norm_rope_kv_write",
    }
)
"""Ops of one rank alone."""

GATED = frozenset({"linear_silu_mul", "scaled_linear_silu_mul"})
"""Those of them whose first op is two, packed."""

PACKED = frozenset(
    "+".join([kind] * count) for kind in ("linear", "scaled_linear") for count in (2, 3)
)
"""Linears of one input: `passes.packing` makes them one op, whatever is fused."""
