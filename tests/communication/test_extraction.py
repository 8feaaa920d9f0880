"""What a communication plan says of a compiled one: the search's prices, its weights' bytes."""

from __future__ import annotations

from math import prod

import pytest
from checkpoints import Family
from planned import deployment, edited

from tscompile.communication.extraction import communication
from tscompile.communication.plan import CommunicationPlan, Entry
from tscompile.communication.prices import Prices
from tscompile.cost.topology import find_topology
from tscompile.ir.finish import finish
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import CompileRequest
from tscompile.ir.verifier import Stage
from tscompile.passes.pipeline import compile_until
from tskernels.ops import OPS
from tskernels.schema import DType, OpKind

SPREAD: tuple[tuple[Family, ParallelSizes], ...] = (
    ("llama", ParallelSizes(1, 1, 1)),
    ("qwen3", ParallelSizes(6, 6, 6)),
    ("qwen3_moe", ParallelSizes(4, 2, 4, 1, 4)),
    ("deepseek", ParallelSizes(4, 4, 4, 1, 2)),
    ("gpt_oss", ParallelSizes(2, 2, 2, 2, 1)),
)

LAYERS = 3
"""Of every tiny model."""


def unpriced(entry: Entry) -> bool:
    """What derives from program inputs alone, which the search leaves out: see search.reading."""
    return entry.op == "rotary_table" or (entry.communicates and entry.dtype is DType.INT32)


@pytest.mark.parametrize(("family", "sizes"), SPREAD, ids=[f for f, _ in SPREAD])
def test_entries_cost_what_the_search_predicted(family: Family, sizes: ParallelSizes) -> None:
    request = deployment(family, sizes)
    draft = compile_until(request, Stage.PLAN_MEMORY)
    plan = finish(draft)
    found = communication(plan)
    prices, launch = Prices(found), find_topology("h200-nvlink-8").launch
    for program, searched in zip(found.programs, draft.programs, strict=True):
        assert searched.predicted is not None
        time = launches = wire = 0
        for _, entry in program.in_order():
            if not unpriced(entry):
                load = prices.entry(entry)
                time, wire = time + load.picoseconds, wire + load.wire
                launches += load.launches
        # The search charges a sum that waits (and linears apart) a launch, a masked bias no byte.
        more = searched.predicted.picoseconds - time
        waiting = round(more / launch)
        assert abs(more - waiting * launch) <= time // 1000
        assert 0 <= waiting <= 2 * LAYERS
        # Packing merges linears of one input that the search saw apart: one a layer of DeepSeek's.
        assert 0 <= searched.predicted.launches - launches <= LAYERS
        assert wire == searched.predicted.wire_bytes


def test_every_op_that_runs_is_an_entry_of_its_layer() -> None:
    request = deployment("qwen3_moe", ParallelSizes(4, 2, 4, 1, 4))
    plan = finish(compile_until(request, Stage.PIN_KERNELS))
    for program, found in zip(plan.programs, communication(plan).programs, strict=True):
        ran = [op for op in program.ops if OPS[op.op].schema.kind is not OpKind.VIEW]
        entries = list(found.in_order())
        assert sorted(op.pin for op in ran) == sorted(entry.pin for _, entry in entries)
        layers = sorted(layer for section in found.sections for layer in section.layers)
        assert layers == list(range(LAYERS))


def test_memory_is_that_of_the_plan() -> None:
    plan = finish(
        compile_until(deployment("gpt_oss", ParallelSizes(2, 2, 2, 1, 2)), Stage.PLAN_MEMORY)
    )
    found = communication(plan)
    memory = found.memory
    weights = sum(prod(w.shape) * w.dtype.itemsize for w in plan.weights)
    assert sum(memory.values()) - memory["kv"] - memory["arena"] == weights
    assert memory["arena"] == max(program.arena_bytes for program in plan.programs)
    pools = {
        value.name: prod(value.shape) * value.dtype.itemsize
        for value in plan.programs[0].values
        if value.storage.kind == "cache"
    }
    assert 2 * memory["kv"] == sum(pools.values())  # each is named before and after it is written


def test_reductions_are_named_alike_fused_or_not() -> None:
    found = planned(deployment(sizes=2))
    (kind, *_) = (s for s in found.programs[0].sections if s.layers)
    talking = [(entry.module, entry.op) for entry in kind.entries if entry.communicates]
    assert talking == [
        ("self_attn.o_proj", "all_reduce_add_rms_norm"),
        ("mlp.down_proj", "all_reduce_add_rms_norm"),
    ]


def planned(request: CompileRequest) -> CommunicationPlan:
    """The communication of a request's plan."""
    return communication(finish(compile_until(request, Stage.PIN_KERNELS)))


def test_links_carry_what_the_ring_sends() -> None:
    """Over two nodes of 8: a ring sends all within a node, and an eighth of it between nodes."""
    plan = edited(planned(deployment(sizes=2)), "h200-nvlink-8", "h200-ib-2x8")
    plan = edited(plan, "mesh [a=2]", "mesh [a=16]")
    prices = Prices(plan)
    entry = next(e for _, e in plan.programs[0].in_order() if e.op == "all_reduce_add_rms_norm")
    sent = 2 * entry.held * 15 // 16
    assert prices.entry(entry).levels == (sent, sent // 8)
