"""One rule for each op: how it may be spread over an axis, and what that costs."""

from __future__ import annotations

from tscompile.rules.rule import OpTypes, Rule, Strategy
from tscompile.rules.table import RULES

__all__ = ["RULES", "OpTypes", "Rule", "Strategy"]
