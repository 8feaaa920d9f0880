"""Prices of collectives and kernels against the closed forms of the literature."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest

from tscompile.cost.errors import TopologyError
from tscompile.cost.model import Collective, CostModel, Price
from tscompile.cost.topology import NAMES, Link, Measured, Topology, find_topology
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tsruntime.artifact.schema import Axis

MESH = build_mesh(ParallelSizes(world=8, attn_tp=2, dense_tp=8))  # a=2, b=4
BYTES = 64 * 1024
SECOND = 10**12
# One byte a picosecond, nothing else; and messages of one picosecond, nothing else.
WIRE = Topology("wire", (Link(8, 0, 0, 10**6),), 10**6, 10**6, 0)
HOPS = Topology("hops", (Link(8, 0, 1, 10**15),), 10**6, 10**6, 0)


def price(topology: Topology, kind: Collective, axes: tuple[str, ...]) -> Price:
    return CostModel(topology, MESH.axes).collective(kind, axes, BYTES)


@pytest.mark.parametrize(
    ("kind", "axes", "wholes", "messages"),
    [
        # Of what a rank holds: 2 (n-1)/n for a reduction, (n-1)/n for a scatter or an exchange,
        # n-1 for a gather; log2 n messages, twice that for a reduction (Thakur et al., 2005).
        (Collective.ALL_REDUCE, ("a", "b"), 2 * 7 / 8, 6),
        (Collective.ALL_REDUCE, ("b",), 2 * 3 / 4, 4),
        (Collective.REDUCE_SCATTER, ("b",), 3 / 4, 2),
        (Collective.ALL_GATHER, ("a", "b"), 7, 3),
        (Collective.ALL_TO_ALL, ("b",), 3 / 4, 2),
    ],
)
def test_bytes_on_the_wire_and_messages(
    kind: Collective, axes: tuple[str, ...], wholes: float, messages: int
) -> None:
    found = price(WIRE, kind, axes)
    assert (found.picoseconds, found.wire_bytes) == (wholes * BYTES, wholes * BYTES)
    assert price(HOPS, kind, axes).picoseconds == messages


def test_one_collective_over_two_axes_beats_one_over_each() -> None:
    h200 = find_topology("h200-nvlink-8")
    joint = price(h200, Collective.ALL_REDUCE, ("a", "b"))
    each = price(h200, Collective.ALL_REDUCE, ("a",)) + price(h200, Collective.ALL_REDUCE, ("b",))
    assert joint < each
    assert (joint.launches, each.launches) == (1, 2)


def test_a_kernel_takes_its_traffic_or_its_arithmetic_and_a_launch() -> None:
    costs = CostModel(replace(WIRE, launch=7), MESH.axes)
    assert costs.kernel(100, 30) == Price(107, 1, 0)
    assert costs.kernel(100, 300) == Price(307, 1, 0)


def test_ties_go_to_fewer_launches_then_fewer_bytes() -> None:
    assert Price(5, 1, 9) < Price(5, 2, 0) < Price(6, 0, 0)
    assert Price(5, 1, 8) < Price(5, 1, 9)


def test_a_measured_table_overrides_the_model_between_its_sizes() -> None:
    table = (Measured("all_reduce", 2, 1000, 500), Measured("all_reduce", 2, 3000, 900))
    costs = CostModel(replace(WIRE, measured=table), MESH.axes)
    taken = [costs.collective(Collective.ALL_REDUCE, ("a",), n).picoseconds for n in (1, 2000)]
    assert taken == [500, 700]
    beyond = costs.collective(Collective.ALL_REDUCE, ("a",), 5000)
    assert beyond.picoseconds == 900 + 2000  # continued at the model's rate: one byte a picosecond


@pytest.mark.parametrize("name", NAMES)
def test_every_named_topology_is_found_and_sane(name: str) -> None:
    topology = find_topology(name)
    assert topology.name == name
    assert topology.ranks >= 8
    ranks = [link.ranks for link in topology.links]
    assert ranks == sorted(set(ranks))
    bandwidths = [link.bandwidth for link in topology.links]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert topology.memory > topology.links[0].bandwidth


@pytest.mark.parametrize("name", NAMES)
def test_many_collectives_at_once_cost_what_each_does(name: str) -> None:
    topology, random = find_topology(name), Random(name)
    axes = tuple(Axis(letter, 2) for letter in "abcd"[: topology.ranks.bit_length() - 1])
    costs = CostModel(topology, axes)
    every = [
        (kind, tuple(axis.name for axis in some))
        for count in range(len(axes) + 1)
        for some in combinations(axes, count)
        for kind in Collective
    ]
    wires = costs.wires(every)
    for most in (9, 16, 24, 36):
        held = [random.randrange(1 << most) for _ in every]
        time, sent = wires(np.array(held, np.int64))
        found = [Price(int(t), 0, int(w)) for t, w in zip(time, sent, strict=True)]
        assert found == [
            costs.wired(kind, names, size) for (kind, names), size in zip(every, held, strict=True)
        ]


def test_an_unknown_topology_names_the_known_ones() -> None:
    with pytest.raises(TopologyError) as refusal:
        find_topology("carrier-pigeon")
    assert "carrier-pigeon" in str(refusal.value)
    assert all(name in str(refusal.value) for name in ("cpu-gloo", "h200-nvlink-8"))


def test_a_world_that_the_topology_does_not_hold() -> None:
    mesh = build_mesh(ParallelSizes(world=16, attn_tp=16, dense_tp=16))
    with pytest.raises(TopologyError) as refusal:
        CostModel(find_topology("h200-nvlink-8"), mesh.axes)
    assert "world = 16" in str(refusal.value)
