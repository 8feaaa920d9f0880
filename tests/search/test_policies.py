"""The peers' communication as constrained runs of the search, and ours never slower."""

from __future__ import annotations

import pytest
from search.abstract_rules import rule_of
from search.decoders import Decoder, build
from search.test_known_layers import layer_text

from tscompile.cost.model import CostModel, Price
from tscompile.cost.topology import find_topology
from tscompile.ir.errors import PolicyError
from tscompile.ir.mesh import ParallelSizes
from tscompile.search.policies import PolicyName, check_expressible, policy_of
from tscompile.search.program import Program
from tscompile.search.segment import Compiler, Tables
from tscompile.search.solution import Run, Solution, solve
from tsruntime.artifact.schema import Mesh

SIZES = {
    "8/8": ParallelSizes(8, 8, 8),
    "4/8": ParallelSizes(8, 4, 8),
    "4/2": ParallelSizes(8, 4, 2),
    "1/ep8": ParallelSizes(8, 1, 1, moe_ep=8),
    "4/4/ep8": ParallelSizes(8, 4, 4, moe_ep=8),
}


def decoder(sizes: str, rows: int) -> Decoder:
    moe = "ep" in sizes
    return Decoder(
        SIZES[sizes],
        rows=rows,
        layers=4,
        hidden=4096,
        width=1024 if moe else 12288,
        heads=32,
        kv_heads=8,
        head_dim=128,
        sequences=8,
        experts=16 if moe else 0,
    )


def expressible(name: PolicyName, mesh: Mesh, program: Program) -> bool:
    try:
        check_expressible(name, mesh, program)
    except PolicyError:
        return False
    return True


def test_what_vllm_cannot_express_is_said() -> None:
    mesh, program = build(decoder("4/8", 8))
    with pytest.raises(PolicyError, match="one size for attention and dense layers, not 4 and 8"):
        check_expressible(PolicyName.VLLM, mesh, program)


def searched(sizes: str, rows: int, name: PolicyName) -> tuple[str, Solution, Mesh]:
    mesh, program = build(decoder(sizes, rows))
    costs = CostModel(find_topology("h200-nvlink-8"), mesh.axes)
    compiler = Compiler(Tables(costs), rule_of, policy_of(name, mesh, program))
    solution = solve(compiler.compile_(program))
    assert solution.total() == solution.price
    return layer_text(program, solution, 2), solution, mesh


@pytest.mark.parametrize(
    ("sizes", "naive", "tokenspeed"),
    [
        (
            "4/8",
            "AR[ab] norm attention AR[a] norm AG[b] mlp",
            "RS[ab] norm AG[a] attention RS[a] norm AG[ab] mlp",
        ),
        (
            "4/2",
            "AR[a] norm attention AR[ab] norm mlp",
            "RS[a] norm AG[ab] attention RS[ab] norm AG[a] mlp",
        ),
        (
            "1/ep8",
            "RS[a] norm attention norm AG[a] experts",
            "RS[a] norm attention norm AG[a] experts",
        ),
        (
            "4/4/ep8",
            "AR[ab] norm attention AR[a] norm AG[b] experts",
            "RS[ab] norm AG[a] attention RS[a] norm AG[ab] experts",
        ),
    ],
)
def test_unequal_sizes(sizes: str, naive: str, tokenspeed: str) -> None:
    assert searched(sizes, 8, PolicyName.NAIVE)[0] == naive
    assert searched(sizes, 8, PolicyName.TOKENSPEED)[0] == tokenspeed


def test_equal_sizes_fuse_their_reductions_with_the_next_norm_across_the_layer() -> None:
    for name in (PolicyName.TOKENSPEED, PolicyName.VLLM):
        kinds = [
            action.option.kind
            for action in searched("8/8", 8, name)[1].actions
            if isinstance(action, Run) and "norm" in action.option.kind
        ]
        assert kinds[:-1] == ["all_reduce+identity+rms_norm"] + ["all_reduce+add+rms_norm"] * 7


def test_naive_fuses_no_reduction() -> None:
    text, solution, _ = searched("8/8", 8, PolicyName.NAIVE)
    assert text == "AR[a] norm attention AR[a] norm mlp"
    runs = [action for action in solution.actions if isinstance(action, Run)]
    assert not any("reduce" in run.option.kind for run in runs)


def test_vllm_has_one_size_for_attention_and_dense_layers() -> None:
    for sizes, possible in (("8/8", True), ("4/8", False), ("4/2", False), ("4/4/ep8", True)):
        mesh, program = build(decoder(sizes, 8))
        assert expressible(PolicyName.VLLM, mesh, program) is possible
        assert expressible(PolicyName.TOKENSPEED, mesh, program)


@pytest.mark.parametrize("rows", [1, 8, 1024])
@pytest.mark.parametrize("sizes", list(SIZES))
def test_ours_is_never_slower(sizes: str, rows: int) -> None:
    ours = searched(sizes, rows, PolicyName.OURS)[1].price
    mesh, program = build(decoder(sizes, rows))
    for name in PolicyName:
        if expressible(name, mesh, program):
            assert ours <= searched(sizes, rows, name)[1].price
    assert ours > Price()
