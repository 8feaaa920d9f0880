"""The relation of every op of a traced program, by the op's name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tscompile.simulate.relations.attention import attention, kv_write, rotary, rotary_table
from tscompile.simulate.relations.base import Relation, alike
from tscompile.simulate.relations.dense import embedding, linear, rms_norm, scaled_linear
from tscompile.simulate.relations.mla import latent_write, mla
from tscompile.simulate.relations.moe import experts, route
from tscompile.simulate.relations.movement import flatten, narrow, select_rows, unflatten

RELATIONS: Mapping[str, Relation] = MappingProxyType(
    {
        "embedding": embedding,
        "linear": linear,
        "scaled_linear": scaled_linear,
        "rms_norm": rms_norm,
        "add": alike(2),
        "silu_mul": alike(2),
        "rotary_table": rotary_table,
        "rotary": rotary,
        "kv_write": kv_write,
        "attention": attention,
        "latent_write": latent_write,
        "mla": mla,
        "narrow": narrow,
        "route": route,
        "experts": experts,
        "select_rows": select_rows,
        "unflatten": unflatten,
        "flatten": flatten,
    }
)
"""How the sizes of an op's operands are related."""
