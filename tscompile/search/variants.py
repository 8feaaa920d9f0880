"""The ways of one op that differ in cost alone: the cheapest on the tiles of one rank."""

from __future__ import annotations

from tscompile.cost.model import CostModel
from tscompile.rules import OpTypes, Rule


def cheapest(costs: CostModel, rule: Rule, types: OpTypes) -> OpTypes:
    """The op on local `types` with the attributes of its cheapest variant; ties to the first."""
    if not rule.variants:
        return types
    return min(rule.ways(types), key=lambda way: costs.kernel(rule.traffic(way), rule.flops(way)))
