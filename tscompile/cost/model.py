"""The alpha-beta model: prices of compute and of reshards, in integer picoseconds."""

from __future__ import annotations

from dataclasses import dataclass

from tscompile.cost.topology import Topology
from tscompile.ir.placement import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    local_shape,
)
from tskernels.schema import TensorType
from tsruntime.artifact.schema import Mesh

_SECOND = 10**12


@dataclass(frozen=True, slots=True, order=True)
class Price:
    """Predicted time, then what breaks ties: launches, then bytes on the wire of one rank."""

    picoseconds: int = 0
    launches: int = 0
    wire_bytes: int = 0

    def __add__(self, other: Price) -> Price:
        return Price(
            self.picoseconds + other.picoseconds,
            self.launches + other.launches,
            self.wire_bytes + other.wire_bytes,
        )


FREE = Price()


def compute_price(topology: Topology, moved_bytes: int, flops: int) -> Price:
    """A kernel: its memory traffic or its arithmetic, whichever takes longer, and a launch."""
    traffic = moved_bytes * _SECOND // topology.memory_bandwidth
    arithmetic = flops * _SECOND // topology.flops
    return Price(max(traffic, arithmetic) + topology.launch, 1)


def collective_price(topology: Topology, steps: int, wire_bytes: int) -> Price:
    """`steps` messages one after the other that carry `wire_bytes` in all."""
    wire = wire_bytes * _SECOND // topology.link_bandwidth
    return Price(steps * topology.message_latency + wire + topology.launch, 1, wire_bytes)


def reshard_price(
    topology: Topology, mesh: Mesh, type_: TensorType, source: Placements, target: Placements
) -> Price:
    """Going from `source` to `target`, one axis after another, as `lower_reshards` does.

    Ring algorithms (Thakur et al., 2005): n-1 messages of the n-th part for a gather, a scatter
    or an all-to-all; twice that for an all-reduce.
    """
    price, current = FREE, list(source)
    for index, axis in enumerate(mesh.axes):
        if current[index] == target[index]:
            continue
        size = local_bytes(mesh, type_, tuple(current))
        price += _step_price(topology, current[index], target[index], size, axis.size)
        current[index] = target[index]
    return price


def _step_price(
    topology: Topology, source: Placement, target: Placement, size: int, ranks: int
) -> Price:
    """One axis of `ranks` ranks; `size` is the bytes that a rank holds before."""
    match source, target:
        case Partial(), Replicate():
            return collective_price(topology, 2 * (ranks - 1), 2 * size * (ranks - 1) // ranks)
        case Partial(), Shard():
            return collective_price(topology, ranks - 1, size * (ranks - 1) // ranks)
        case Shard(), Replicate():
            return collective_price(topology, ranks - 1, size * (ranks - 1))
        case Shard(), Shard():
            return collective_price(topology, ranks - 1, size * (ranks - 1) // ranks)
        case _:
            return compute_price(topology, 2 * size, 0)


def local_bytes(mesh: Mesh, type_: TensorType, placements: Placements) -> int:
    """Bytes that one rank holds of a value."""
    size = type_.dtype.itemsize
    for extent in local_shape(mesh, type_.shape, placements):
        size *= extent
    return size
