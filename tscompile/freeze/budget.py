"""Refusing a plan that a device of its target has no room for, before any weight is written."""

from __future__ import annotations

from tscompile.cost.topology import find_topology
from tscompile.ir.errors import DeviceMemoryError
from tsruntime.artifact.budget import budget
from tsruntime.artifact.launches import Launches
from tsruntime.artifact.schema import Plan


def check_budget(plan: Plan, launches: Launches) -> None:
    """DeviceMemoryError if a rank takes more than a device of the topology has."""
    topology, taken = find_topology(plan.target.topology), budget(plan, launches)
    if topology.capacity is not None and taken.total > topology.capacity:
        raise DeviceMemoryError(
            f"a rank takes {taken.sums()}, but a device of {topology.name} has"
            f" {topology.capacity / 1e9:.2f} GB",
            remedy="give kv_cache less memory, lower limits.max_batch, or cut the weights over more"
            " ranks",
            where="kv_cache",
        )
