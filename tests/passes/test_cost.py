from __future__ import annotations

from dataclasses import replace

import pytest

from tscompile.cost.model import Price, compute_price, reshard_price
from tscompile.cost.topology import TOPOLOGIES, Topology
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.placement import PARTIAL, REPLICATE, Placements, Shard
from tskernels.schema import DType, TensorType

MESH = build_mesh(ParallelSizes(world=8, attn_tp=2, dense_tp=8))  # a=2, b=4
TYPE = TensorType(DType.FLOAT32, (64, 256))
BYTES = 64 * 256 * 4
SECOND = 10**12
WIRE = Topology("wire", 0, 0, link_bandwidth=BYTES, memory_bandwidth=SECOND, flops=SECOND)
LATENCY = replace(WIRE, message_latency=1, link_bandwidth=10 * BYTES * SECOND)


def price(topology: Topology, source: Placements, target: Placements) -> int:
    return reshard_price(topology, MESH, TYPE, source, target).picoseconds


@pytest.mark.parametrize(
    ("source", "target", "wholes", "messages"),
    [
        # Of the whole value: 2 (n-1)/n for a reduction, (n-1)/n for a scatter or gather.
        ((PARTIAL, PARTIAL), (REPLICATE, REPLICATE), 2 * 7 / 8, 6),
        ((REPLICATE, PARTIAL), (REPLICATE, REPLICATE), 2 * 3 / 4, 4),
        ((REPLICATE, PARTIAL), (REPLICATE, Shard(0)), 3 / 4, 2),
        ((Shard(1), Shard(1)), (REPLICATE, REPLICATE), 7 / 8, 3),
        ((REPLICATE, Shard(0)), (REPLICATE, Shard(1)), 3 / 16, 2),
        ((Shard(0), REPLICATE), (Shard(0), REPLICATE), 0, 0),
    ],
)
def test_bytes_on_the_wire_and_messages(
    source: Placements, target: Placements, wholes: float, messages: int
) -> None:
    assert price(WIRE, source, target) == wholes * SECOND
    assert price(LATENCY, source, target) == messages


def test_one_collective_over_two_axes_beats_one_over_each() -> None:
    gloo = TOPOLOGIES["cpu-gloo"]
    halfway = (REPLICATE, PARTIAL)
    joint = reshard_price(gloo, MESH, TYPE, (PARTIAL, PARTIAL), (REPLICATE, REPLICATE))
    first = reshard_price(gloo, MESH, TYPE, (PARTIAL, PARTIAL), halfway)
    second = reshard_price(gloo, MESH, TYPE, halfway, (REPLICATE, REPLICATE))
    assert joint < first + second
    assert (joint.launches, (first + second).launches) == (1, 2)


def test_a_kernel_takes_its_traffic_or_its_arithmetic_and_a_launch() -> None:
    topology = Topology("t", 0, 7, link_bandwidth=1, memory_bandwidth=SECOND, flops=SECOND)
    assert compute_price(topology, 100, 30) == Price(107, 1, 0)
    assert compute_price(topology, 100, 300) == Price(307, 1, 0)


def test_ties_go_to_fewer_launches_then_fewer_bytes() -> None:
    assert Price(5, 1, 9) < Price(5, 2, 0) < Price(6, 0, 0)
    assert Price(5, 1, 8) < Price(5, 1, 9)
