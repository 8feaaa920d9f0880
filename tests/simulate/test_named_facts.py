"""What the compiler's plans must hold where groups differ: masks, gathers, layouts of the cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn_plans import Dims, Setup, proven
from proof.edits import bypassed, ops_of
from proof.trial import Outcome, Trial

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.passes.pipeline import compile_plan
from tsruntime.artifact.proof.checker import check_proof, derive
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.proof.runs import whole
from tsruntime.artifact.schema import CacheStorage, Phase, RankIndex, Target

DIMS = Dims(layers=2, width=4, batch=4, tokens=8, vocabulary=32)


def test_a_shared_expert_is_masked_and_must_be() -> None:
    """attn 4, dense 2, ep 8 over fast links: its weights are whole along the axes of no dense rank,

    so that its sum, due along {a}, joins the routed one, due along all axes, only once.
    """
    setup = Setup("deepseek", ParallelSizes(8, 4, 2, 1, 8), DIMS)
    request = replace(setup.request(), target=Target("cpu", "x86_64", "h200-nvlink-8"))
    certificate, plan = certify(request), compile_plan(request).plan
    extend = next(p for p in plan.programs if p.phase is Phase.EXTEND)
    plan = replace(plan, programs=(extend,))
    check_proof(plan, certificate)
    ((index, mask),) = ops_of(plan, "mask")
    assert mask.module == "model.layers.1.mlp.shared_experts.down_proj"
    assert mask.attributes["coordinate"] == RankIndex(("b", "c"), 1)
    counted_often = bypassed(plan, index)
    with pytest.raises(PlanUnproven):
        check_proof(counted_often, certificate)
    assert Trial(plan, certificate).outcome([counted_often] * 8) is Outcome.CHANGED


def test_experts_over_two_replicas_see_the_rows_of_both() -> None:
    """attn 4 in two replicas, experts over 8: a rank that saw only its own rows would lose some."""
    plan, certificate = proven(Setup("qwen3_moe", ParallelSizes(8, 4, 4, 1, 8), DIMS))
    for index, program in enumerate(plan.programs):
        _, tiles = derive(plan, certificate, index)
        seen = [op.inputs[0] or "" for op in program.ops if op.op == "experts"]
        assert seen
        for name in seen:
            rows = {tile[name].pieces[0].tile[0] for tile in tiles}
            assert rows == {whole(2 * program.tokens)}


@pytest.mark.parametrize(
    "setup",
    [
        Setup("qwen3", ParallelSizes(4, 4, 2), replace(DIMS, decodes=True)),
        Setup("llama", ParallelSizes(4, 2, 4), replace(DIMS, shared=2, decodes=True)),
        Setup("deepseek", ParallelSizes(4, 2, 1, 1, 4), replace(DIMS, decodes=True)),
    ],
    ids=lambda setup: setup.family,
)
def test_all_programs_lay_the_cache_out_alike(setup: Setup) -> None:
    plan, certificate = proven(setup)
    layouts: dict[tuple[int, int], set[object]] = {}
    for index, program in enumerate(plan.programs):
        _, tiles = derive(plan, certificate, index)
        for value in program.values:
            if isinstance(value.storage, CacheStorage):
                for rank, tile in enumerate(tiles):
                    (piece,) = tile[value.name].pieces
                    found = layouts.setdefault((rank, value.storage.layer), set())
                    found.add((value.shape, piece.tile))
    assert len(plan.programs) == 3
    assert len(layouts) == plan.mesh.world * 2
    assert all(len(found) == 1 for found in layouts.values())
