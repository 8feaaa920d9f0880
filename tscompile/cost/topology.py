"""Named topologies: how fast the ranks talk to each other, read memory and compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tscompile.cost.errors import TopologyError


@dataclass(frozen=True, slots=True)
class Topology:
    """Latency in picoseconds; bandwidths in bytes (flops) a second, of one rank."""

    name: str
    message_latency: int
    launch: int
    link_bandwidth: int
    memory_bandwidth: int
    flops: int


_MICROSECOND = 1_000_000

TOPOLOGIES: Mapping[str, Topology] = {
    # gloo over loopback, measured with 2 to 8 ranks on two cores: an all-reduce of 128 KB takes
    # 2 ms at two ranks and 5 ms at four, nearly all of it latency.
    "cpu-gloo": Topology(
        name="cpu-gloo",
        message_latency=800 * _MICROSECOND,
        launch=5 * _MICROSECOND,
        link_bandwidth=1_000_000_000,
        memory_bandwidth=12_000_000_000,
        flops=50_000_000_000,
    ),
}


def find_topology(name: str) -> Topology:
    """The topology of that name; TopologyError names those that there are."""
    if name not in TOPOLOGIES:
        raise TopologyError(
            f"there is no topology {name!r}",
            remedy=f"use one of {', '.join(sorted(TOPOLOGIES))}",
            where="target.topology",
        )
    return TOPOLOGIES[name]
