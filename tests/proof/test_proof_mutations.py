"""The proof is honest: whatever mutation changes a value or hangs is refused."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import pytest
from compile_requests import tiny_model_config, tiny_request
from proof.handmade import Spread, certificate_of, handmade_plan, tiny_config
from proof.mutations import UNIFORM, Mutant, mutants
from proof.test_proof_handmade import SPREADS
from proof.trial import Outcome, Trial

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.passes.pipeline import compile_plan
from tskernels.errors import TsError
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_ranks
from tsruntime.artifact.schema import Phase, Plan

CI_SITES = 3
"""Sites of each kind that CI tries, on each spread."""


def accepted(mutant: Mutant, certificate: Certificate) -> bool:
    try:
        check_ranks(mutant.plans, certificate)
    except TsError:
        return False
    return True


def some_sites(found: Iterable[Mutant], count: int) -> list[Mutant]:
    """Up to `count` mutants of each kind, the same ones every time."""
    by_kind: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in found:
        by_kind[mutant.kind].append(mutant)
    chosen = random.Random(0)
    return [
        mutant
        for kind in by_kind.values()
        for mutant in (chosen.sample(kind, count) if len(kind) > count else kind)
    ]


def mutated(spread: Spread) -> tuple[Plan, Certificate, list[Mutant]]:
    config = tiny_config()
    certificate = certificate_of(config)
    plan = handmade_plan(certificate, config, spread, [("extend", 8, 3)])
    return plan, certificate, list(mutants(plan))


def falsely_accepted(plan: Plan, certificate: Certificate, tried: Iterable[Mutant]) -> list[str]:
    trial = Trial(plan, certificate)
    return [
        f"{mutant.kind}: {mutant.site}"
        for mutant in tried
        if accepted(mutant, certificate) and trial.outcome(mutant.plans) is not Outcome.SAME
    ]


def compiled() -> tuple[Plan, Certificate]:
    """An extend program of the compiler's own, which uses memory again and again."""
    config = tiny_model_config("llama3", num_hidden_layers=2, mlp_bias=True, attention_bias=True)
    request = tiny_request(config, ParallelSizes(6, 6, 2))
    plan = compile_plan(request).plan
    extend = next(p for p in plan.programs if p.logits == "last" and p.phase is Phase.EXTEND)
    return replace(plan, programs=(extend,)), certify(request)


def test_refuses_what_changes_a_compiled_plan() -> None:
    plan, certificate = compiled()
    tried = some_sites(mutants(plan), CI_SITES)
    assert len(tried) > 80
    assert falsely_accepted(plan, certificate, tried) == []


@pytest.mark.nightly
def test_refuses_what_changes_a_compiled_plan_everywhere() -> None:
    plan, certificate = compiled()
    assert falsely_accepted(plan, certificate, mutants(plan)) == []


@pytest.mark.parametrize("name", ["attention 4, dense 2", "attention 2, dense 4 of 8"])
def test_refuses_what_changes(name: str) -> None:
    plan, certificate, found = mutated(SPREADS[name])
    assert falsely_accepted(plan, certificate, some_sites(found, CI_SITES)) == []


def test_every_kind_applies_and_matters() -> None:
    """Each kind has a site where ranks that really run it give another value, or hang."""
    config = tiny_config(vocab_size=16)  # as wide as the model: the logits have a double
    certificate = certificate_of(config)
    matters: set[str] = set()
    for name in ("attention 4, dense 2", "attention 4, dense 8"):
        plan = handmade_plan(certificate, config, SPREADS[name], [("extend", 8, 3)])
        trial = Trial(plan, certificate)
        for mutant in some_sites(mutants(plan), 4):
            if mutant.kind not in matters and trial.outcome(mutant.plans) is not Outcome.SAME:
                matters.add(mutant.kind)
    assert set(UNIFORM) - matters == {"label changed"}
    assert len(matters) > 40


@pytest.mark.nightly
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS.keys())
def test_refuses_what_changes_everywhere(spread: Spread) -> None:
    plan, certificate, found = mutated(spread)
    assert falsely_accepted(plan, certificate, found) == []
