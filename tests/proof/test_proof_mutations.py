"""The proof is honest: whatever mutation changes a value or hangs is refused."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest
from drawn_plans import Dims, Setup, proven
from proof.handmade import Spread, certificate_of, handmade_plan, tiny_config
from proof.mutations import UNIFORM, Mutant, mutants
from proof.test_proof_handmade import SPREADS
from proof.trial import Outcome, Trial

from tscompile.ir.mesh import ParallelSizes
from tskernels.errors import TsError
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_ranks
from tsruntime.artifact.schema import Phase, Plan

CI_SITES = 1
"""Sites of each kind that CI tries, on each spread lowered by hand."""

CI_MUTANTS = 20
"""Of these, how many CI tries on each compiled plan."""


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


_DIMS = Dims(layers=2, width=4, vocabulary=32, bias=True, batch=3, tokens=8)

SETUPS = {
    "attention 4, dense 2": Setup("qwen3", ParallelSizes(4, 4, 2), _DIMS),
    "attention 4, dense 8": Setup("llama3", ParallelSizes(8, 4, 8), replace(_DIMS, shared=2)),
    "attention 2, dense 4 of 8": Setup("qwen2", ParallelSizes(8, 2, 4), _DIMS),
    "attention 1, experts over 4": Setup("qwen3_moe", ParallelSizes(4, 1, 1, 1, 4), _DIMS),
    "shared experts": Setup("deepseek", ParallelSizes(4, 2, 2, 1, 4), _DIMS),
    "one rank": Setup("mistral", ParallelSizes(1, 1, 1), _DIMS),
}


@cache
def compiled(name: str) -> tuple[Plan, Certificate]:
    """An extend program of the compiler's own: fused ops, memory used again and again."""
    plan, certificate = proven(SETUPS[name])
    extend = next(p for p in plan.programs if p.phase is Phase.EXTEND)
    return replace(plan, programs=(extend,)), certificate


@pytest.mark.parametrize("name", SETUPS)
def test_refuses_what_changes_a_compiled_plan(name: str) -> None:
    plan, certificate = compiled(name)
    found = some_sites(mutants(plan), 1)
    tried = random.Random(0).sample(found, min(len(found), CI_MUTANTS))
    assert falsely_accepted(plan, certificate, tried) == []


@pytest.mark.nightly
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("name", SETUPS)
def test_refuses_what_changes_a_compiled_plan_everywhere(name: str) -> None:
    plan, certificate = compiled(name)
    assert falsely_accepted(plan, certificate, mutants(plan)) == []


@pytest.mark.parametrize("name", ["attention 4, dense 2"])
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
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS.keys())
def test_refuses_what_changes_everywhere(spread: Spread) -> None:
    plan, certificate, found = mutated(spread)
    assert falsely_accepted(plan, certificate, found) == []
