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
    """Going from `source` to `target`, axes that change alike in one step, as they are lowered.

    Recursive doubling and halving (Thakur et al., 2005; Rabenseifner's all-reduce): log2 n
    messages for a gather, a scatter or an all-to-all, twice that for an all-reduce, and the
    n-1 n-ths of the bytes that any algorithm must move.
    """
    price, current = FREE, source
    changes = dict.fromkeys((s, t) for s, t in zip(source, target, strict=True) if s != t)
    for change in changes:
        size, ranks = local_bytes(mesh, type_, current), 1
        for axis, *pair in zip(mesh.axes, source, target, strict=True):
            ranks *= axis.size if tuple(pair) == change else 1
        price += _step_price(topology, *change, size, ranks)
        steps = zip(current, source, target, strict=True)
        current = tuple(t if (s, t) == change else now for now, s, t in steps)
    return price


def _step_price(
    topology: Topology, source: Placement, target: Placement, size: int, ranks: int
) -> Price:
    """One step over `ranks` ranks; `size` is the bytes that a rank holds before."""
    steps, rest = (ranks - 1).bit_length(), ranks - 1
    match source, target:
        case Partial(), Replicate():
            return collective_price(topology, 2 * steps, 2 * size * rest // ranks)
        case Shard(), Replicate():
            return collective_price(topology, steps, size * rest)
        case (Partial(), Shard()) | (Shard(), Shard()):
            return collective_price(topology, steps, size * rest // ranks)
        case _:
            return compute_price(topology, 2 * size, 0)


def local_bytes(mesh: Mesh, type_: TensorType, placements: Placements) -> int:
    """Bytes that one rank holds of a value."""
    size = type_.dtype.itemsize
    for extent in local_shape(mesh, type_.shape, placements):
        size *= extent
    return size
