"""Planning a large mixture of experts: four axes, twelve buckets, layers that repeat."""

from __future__ import annotations

import pytest
from search.abstract_rules import rule_of
from search.decoders import Decoder, build

from tscompile.cost.model import CostModel
from tscompile.cost.topology import find_topology
from tscompile.ir.mesh import ParallelSizes
from tscompile.search.segment import Compiler, Tables
from tscompile.search.solution import solve

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "sizes",
    [
        ParallelSizes(16, 4, 16, moe_ep=16),
        ParallelSizes(256, 4, 256, moe_ep=256),
        ParallelSizes(512, 4, 16, moe_tp=2, moe_ep=256),
    ],
    ids=["world16", "world256", "world512"],
)
def test_sixty_one_layers_are_planned_as_a_few_that_repeat(sizes: ParallelSizes) -> None:
    for rows in BUCKETS:
        mesh, program = build(
            Decoder(
                sizes,
                rows=rows,
                layers=61,
                hidden=7168,
                width=2048,
                heads=128,
                kv_heads=4,
                head_dim=128,
                sequences=min(rows, 512),
                experts=256,
                top_k=8,
                dense_layers=3,
                vocabulary=129024,
                context=2048,
            )
        )
        costs = CostModel(find_topology(f"h200-ib-{sizes.world // 8}x8"), mesh.axes)
        solution = solve(Compiler(Tables(costs), rule_of).compile_(program))
        assert sum(repeat.count * repeat.period for repeat in solution.repeats) == 62
        assert len(solution.repeats) < 10
