"""Choose a strategy for every op and mark the reshards between them: see `tscompile.search`."""

from __future__ import annotations

from tscompile.cost.topology import find_topology
from tscompile.ir.draft import Draft
from tscompile.passes.check_annotations import check_annotations
from tscompile.search.drafts import place
from tscompile.search.policies import PolicyName


def propagate_placements(draft: Draft, policy: PolicyName = PolicyName.OURS) -> Draft:
    """Give every value its placements, and put a `reshard` node for every step between two.

    Raises AnnotationError where a boundary's annotation contradicts the body, NoStrategyError
    where nothing fits the bound weights, TopologyError for a topology that is not known.
    """
    topology = find_topology(draft.target.topology)
    check_annotations(draft)
    return place(draft, topology, policy)
