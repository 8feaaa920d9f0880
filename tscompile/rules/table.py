"""The closed table of rules: one for each op that model code may call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tscompile.rules import attention, elementwise, linear, mla, moe, movement
from tscompile.rules.rule import Rule

_ALL = (
    linear.LINEAR,
    linear.SCALED_LINEAR,
    linear.EMBEDDING,
    elementwise.ADD,
    elementwise.SILU_MUL,
    elementwise.RMS_NORM,
    attention.ROTARY_TABLE,
    attention.ROTARY,
    attention.KV_WRITE,
    attention.ATTENTION,
    mla.LATENT_WRITE,
    mla.MLA,
    moe.ROUTE,
    moe.EXPERTS,
    movement.SELECT_ROWS,
    movement.UNFLATTEN,
    movement.FLATTEN,
    movement.SPLIT,
    movement.NARROW,
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.op: rule for rule in _ALL})
