"""Planning a large mixture of experts: four axes, twelve buckets, and no growth with the world."""

from __future__ import annotations

import time

import pytest
from search.decoders import Decoder, build

from tscompile.ir.mesh import ParallelSizes
from tscompile.search.costs import CostModel
from tscompile.search.segment import Compiler
from tscompile.search.solution import solve
from tscompile.search.topology import find_topology

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192)


def seconds(sizes: ParallelSizes) -> float:
    """Processor time to plan DeepSeek-V3's sizes for all buckets."""
    start = time.process_time()
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
        solution = solve(Compiler(costs).compile_(program))
        assert sum(repeat.count * repeat.period for repeat in solution.repeats) == 62
        assert len(solution.repeats) < 10
    return time.process_time() - start


@pytest.mark.nightly
def test_four_axes_and_twelve_buckets() -> None:
    assert seconds(ParallelSizes(512, 4, 16, moe_tp=2, moe_ep=256)) < 8


@pytest.mark.nightly
def test_two_axes_do_not_depend_on_the_world() -> None:
    small = seconds(ParallelSizes(16, 4, 16, moe_ep=16))
    large = seconds(ParallelSizes(256, 4, 256, moe_ep=256))
    assert large < 1.5 * small + 0.5
