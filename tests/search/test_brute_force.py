"""The search finds what enumerating everything finds, on two-layer programs."""

from __future__ import annotations

import random

import pytest
from search.abstract_rules import rule_of
from search.brute_force import BruteForce
from search.brute_prices import Machine, place_of
from search.decoders import Decoder, build

from tscompile.cost.model import CostModel, Price
from tscompile.cost.topology import Link, Topology
from tscompile.ir.mesh import ParallelSizes
from tscompile.search.layout import make_view
from tscompile.search.reshard import Reshards
from tscompile.search.segment import Compiler, Tables
from tscompile.search.solution import solve
from tsruntime.artifact.schema import Axis

_MESHES = (
    ParallelSizes(4, 4, 4),
    ParallelSizes(4, 1, 4),
    ParallelSizes(4, 2, 4),
    ParallelSizes(4, 4, 2),
    ParallelSizes(4, 1, 1, moe_ep=4),
    ParallelSizes(4, 4, 1),
    ParallelSizes(4, 2, 2, moe_tp=1, moe_ep=4),
    ParallelSizes(4, 2, 1, moe_tp=2, moe_ep=2),
)


def drawn(seed: int) -> tuple[Decoder, Machine, bool]:
    """A two-layer program, a machine on which no cost drowns the others, and if it may fuse."""
    draw = random.Random(seed)
    sizes = _MESHES[seed % len(_MESHES)]
    moe = sizes.moe_ep > 1
    rows = draw.choice((1, 2, 4, 8, 64))
    decoder = Decoder(
        sizes,
        rows=rows,
        layers=2,
        hidden=draw.choice((64, 512)),
        width=draw.choice((128, 1024)),
        experts=8 if moe else 0,
        top_k=draw.choice((1, 2)),
        dense_layers=draw.choice((0, 1)),
        sequences=draw.choice((1, rows)),
        valid_rows_only=draw.choice((0, 1)),
        packed=draw.choice((True, False)),
    )
    machine = Machine(
        node=draw.choice((2, 8)),
        latency=(draw.choice((0, 3_000, 900_000)), draw.choice((1_000, 2_000_000))),
        hop=(draw.choice((0, 500, 90_000)), draw.choice((700, 300_000))),
        rate=(draw.choice((1_000, 100_000)), draw.choice((500, 20_000))),
        memory=draw.choice((20_000, 1_000_000)),
        flops=draw.choice((5_000_000, 300_000_000)),
        launch=draw.choice((0, 1_000, 400_000)),
    )
    return decoder, machine, draw.random() < 0.75


def topology_of(machine: Machine) -> Topology:
    links = tuple(
        Link(ranks, machine.latency[i], machine.hop[i], machine.rate[i], direct=i == 0)
        for i, ranks in enumerate((machine.node, 64))
    )
    return Topology("drawn", links, machine.memory, machine.flops, machine.launch)


_LONG = {6, 10, 11, 14, 18, 22, 23, 30, 35, 39}
"""Two axes on which a token may be cut, and two readers of one value: many runs to enumerate."""


@pytest.mark.parametrize(
    "seed",
    [
        *(seed for seed in range(42) if seed not in _LONG),
        *(pytest.param(s, marks=pytest.mark.nightly) for s in range(160) if s > 41 or s in _LONG),
    ],
)
def test_search_equals_enumeration(seed: int) -> None:
    decoder, machine, fuse = drawn(seed)
    mesh, program = build(decoder)
    costs = CostModel(topology_of(machine), mesh.axes)
    solution = solve(Compiler(Tables(costs), rule_of, fuse=fuse).compile_(program))
    assert solution.total() == solution.price
    assert solution.price == Price(*BruteForce(program, machine, fuse=fuse).best)


def test_reshard_prices_equal_those_found_step_by_step() -> None:
    axes = (Axis("a", 2), Axis("b", 2), Axis("c", 3))
    machine = drawn(3)[1]
    view = make_view(axes, (24, 16), (("a", "b", "c"), ("a", "b")), 2)
    reshards = Reshards(CostModel(topology_of(machine), axes), view)
    _, program = build(drawn(3)[0])
    brute = BruteForce(type(program)(axes, {"x": view}, ()), machine, fuse=False)
    for i, source in enumerate(reshards.placements):
        found = brute.distances(view, place_of(source))
        for j, target in enumerate(reshards.placements):
            assert reshards.price(i, j) == Price(*found[place_of(target)])
