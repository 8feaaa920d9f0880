"""The collectives of a steady layer where only latency, or only bandwidth, costs anything."""

from __future__ import annotations

import pytest
from search.abstract_rules import rule_of
from search.decoders import Decoder, build

from tscompile.cost.model import CostModel
from tscompile.cost.topology import Link, Topology
from tscompile.ir.mesh import ParallelSizes
from tscompile.search.program import Program
from tscompile.search.segment import Compiler, Tables
from tscompile.search.solution import Reshard, Solution, solve
from tscompile.search.steps import StepKind

_FREE = 10**15
ALPHA = Topology("alpha", (Link(8, 10**6, 0, _FREE),), _FREE, _FREE, 0)
BETA = Topology("beta", (Link(8, 0, 0, 100_000),), 4_000_000, _FREE, 0)

_SHORT = {
    StepKind.ALL_REDUCE: "AR",
    StepKind.REDUCE_SCATTER: "RS",
    StepKind.ALL_GATHER: "AG",
    StepKind.ALL_TO_ALL: "A2A",
}
_OPS = {
    "rms_norm": "norm",
    "add+rms_norm": "norm",
    "attention": "attention",
    "silu_mul": "mlp",
    "experts": "experts",
}


def layer_text(program: Program, solution: Solution, layer: int) -> str:
    """Collectives, norms and blocks from the layer's entry, where the last block's sum is due."""
    names = [operation.name for operation in program.operations]
    start, end = names.index(f"{layer - 1}.next"), names.index(f"{layer}.next")
    words: list[str] = []
    for action in solution.actions:
        if not start <= action.position < end:
            continue
        if isinstance(action, Reshard):
            step = action.move.step
            if step.kind in _SHORT:
                words.append(f"{_SHORT[step.kind]}[{''.join(step.axes)}]")
        elif action.option.kind in _OPS:
            words.append(_OPS[action.option.kind] + action.option.note)
    return " ".join(words)


@pytest.mark.parametrize(
    ("attn", "dense", "alpha", "beta"),
    [
        (
            8,
            8,
            "AR[a] norm attention AR[a] norm mlp",
            "RS[a] norm AG[a] attention RS[a] norm AG[a] mlp",
        ),
        (
            4,
            8,
            "AR[ab] norm attention AR[a] AG[b] norm mlp",
            "RS[ab] norm AG[a] attention RS[a] norm AG[ab] mlp",
        ),
        (
            4,
            2,
            "AR[a] norm attention AR[ab] norm mlp",
            "RS[a] norm AG[ab] attention RS[ab] norm AG[a] mlp",
        ),
    ],
)
def test_dense_layers(attn: int, dense: int, alpha: str, beta: str) -> None:
    decoder = Decoder(
        ParallelSizes(8, attn, dense),
        rows=8,
        sequences=8,
        layers=4,
        hidden=4096,
        width=12288,
        heads=32,
        kv_heads=8,
        head_dim=128,
    )
    mesh, program = build(decoder)
    for topology, expected in ((ALPHA, alpha), (BETA, beta)):
        compiler = Compiler(Tables(CostModel(topology, mesh.axes)), rule_of, fuse=False)
        solution = solve(compiler.compile_(program))
        assert solution.total() == solution.price
        assert layer_text(program, solution, 2) == expected


@pytest.mark.parametrize(
    ("topology", "valid_rows_only", "expected"),
    [
        (ALPHA, 0, "RS[a] norm attention norm AG[a] experts"),
        (BETA, 0, "RS[a] norm attention norm AG[a] experts"),
        (BETA, 1, "norm attention norm expertsall_to_all[a]"),
    ],
)
def test_expert_layers(topology: Topology, valid_rows_only: int, expected: str) -> None:
    decoder = Decoder(
        ParallelSizes(8, 1, 1, moe_ep=8),
        rows=8,
        sequences=8,
        layers=4,
        hidden=4096,
        width=1024,
        heads=32,
        kv_heads=8,
        head_dim=128,
        experts=16,
        valid_rows_only=valid_rows_only,
    )
    mesh, program = build(decoder)
    compiler = Compiler(Tables(CostModel(topology, mesh.axes)), rule_of, fuse=False)
    solution = solve(compiler.compile_(program))
    assert layer_text(program, solution, 2) == expected
