"""The proof of plans with experts: what is right is accepted, what changes a value refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compile_requests import tiny_model_config, tiny_request
from proof.edits import ops_of, with_attributes, with_input, with_weight
from proof.mutations import mutants
from proof.test_proof_mutations import falsely_accepted, some_sites

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.passes.pipeline import compile_plan
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import Phase, Plan, RankIndex, Stack

SPLITS = {
    "experts": ParallelSizes(2, 2, 2, 1, 2),
    "width": ParallelSizes(2, 2, 2, 2, 1),
    "both, over replicas": ParallelSizes(4, 2, 2, 2, 2),
    "experts over replicas": ParallelSizes(4, 1, 4, 1, 4),
}


def compiled(sizes: ParallelSizes) -> tuple[Plan, Certificate]:
    """One extend program of two layers, both with experts."""
    config = tiny_model_config(
        "qwen3_moe", num_hidden_layers=2, mlp_only_layers=[], num_key_value_heads=12
    )
    request = tiny_request(config, sizes)
    plan = compile_plan(request).plan
    extend = next(p for p in plan.programs if p.logits == "last" and p.phase is Phase.EXTEND)
    return replace(plan, programs=(extend,)), certify(request)


def test_refuses_what_changes_a_value() -> None:
    plan, certificate = compiled(SPLITS["both, over replicas"])
    tried = some_sites(mutants(plan), 1)
    assert falsely_accepted(plan, certificate, tried) == []


@pytest.mark.nightly
@pytest.mark.parametrize("split", SPLITS)
def test_refuses_what_changes_a_value_everywhere(split: str) -> None:
    plan, certificate = compiled(SPLITS[split])
    assert falsely_accepted(plan, certificate, mutants(plan)) == []


def refused(plan: Plan, certificate: Certificate) -> str:
    with pytest.raises(PlanUnproven) as refusal:
        check_proof(plan, certificate)
    return refusal.value.message


def test_experts_counted_from_another_one_are_refused() -> None:
    plan, certificate = compiled(SPLITS["experts"])
    check_proof(plan, certificate)
    at, op = next(iter(ops_of(plan, "experts")))
    assert op.attributes["expert_start"] == RankIndex(("a",), 6)
    said = refused(with_attributes(plan, at, expert_start=0), certificate)
    assert "of the experts [6,12), but expert_start is 0" in said


def test_a_stack_cut_over_no_rank_is_another_weight() -> None:
    plan, certificate = compiled(SPLITS["experts"])
    weight = next(w for w in plan.weights if w.name.endswith("{}.down_proj.weight"))
    (part,) = weight.parts
    assert part.stack == Stack(12, ("a",))
    fewer = replace(weight, parts=(replace(part, stack=Stack(6, ())),))
    assert "it is cut from" in refused(with_weight(plan, fewer), certificate)


def test_other_experts_down_weights_are_refused() -> None:
    plan, certificate = compiled(SPLITS["width"])
    at, op = next(iter(ops_of(plan, "experts")))
    gate, up = op.inputs[3], op.inputs[4]
    swapped = with_input(with_input(plan, at, 3, up), at, 4, gate)
    assert "it computes experts(" in refused(swapped, certificate)
