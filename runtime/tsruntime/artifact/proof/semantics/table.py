"""What each local op does to tiles and sums: the checker's own meaning of the operators.

Every function takes the traced program, one rank's inputs and its resolved attributes, and gives
that rank's outputs; it refuses what it cannot show to be a tile of a traced value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tsruntime.artifact.proof.semantics.attention import attention, kv_write, rotary, rotary_table
from tsruntime.artifact.proof.semantics.base import Semantics
from tsruntime.artifact.proof.semantics.dense import embedding, linear, scaled_linear
from tsruntime.artifact.proof.semantics.elementwise import add, rms_norm, silu_mul
from tsruntime.artifact.proof.semantics.exchange import combine, dispatch
from tsruntime.artifact.proof.semantics.fused import (
    add_rms_norm,
    linear_silu_mul,
    qk_norm_rope_kv_write,
    rope_kv_write,
    scaled_linear_silu_mul,
)
from tsruntime.artifact.proof.semantics.mla import latent_write, mla
from tsruntime.artifact.proof.semantics.moe import experts, route
from tsruntime.artifact.proof.semantics.movement import (
    flatten,
    mask,
    permute,
    select_rows,
    split,
    subrange,
    unflatten,
)

SEMANTICS: Mapping[str, Semantics] = MappingProxyType(
    {
        "embedding": embedding,
        "linear": linear,
        "scaled_linear": scaled_linear,
        "rms_norm": rms_norm,
        "add": add,
        "silu_mul": silu_mul,
        "rotary_table": rotary_table,
        "rotary": rotary,
        "kv_write": kv_write,
        "attention": attention,
        "latent_write": latent_write,
        "mla": mla,
        "route": route,
        "experts": experts,
        "dispatch": dispatch,
        "combine": combine,
        "select_rows": select_rows,
        "mask": mask,
        "slice": subrange,
        "permute": permute,
        "narrow": subrange,
        "split": split,
        "unflatten": unflatten,
        "flatten": flatten,
        "add_rms_norm": add_rms_norm,
        "linear_silu_mul": linear_silu_mul,
        "scaled_linear_silu_mul": scaled_linear_silu_mul,
        "rope_kv_write": rope_kv_write,
        "qk_norm_rope_kv_write": qk_norm_rope_kv_write,
    }
)
"""The local ops that the checker understands; an op that is not here proves nothing."""
