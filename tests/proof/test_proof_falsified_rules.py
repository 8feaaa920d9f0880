"""A compiler whose rules lie makes no plan that passes the checker and simulates wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from checkpoints import Family
from compile_requests import tiny_model_config, tiny_request

from tscompile.freeze.certificate import certify
from tscompile.ir import invariants
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tscompile.ir.request import Buckets, CompileRequest, LimitsRequest
from tscompile.passes import choice
from tscompile.passes.pipeline import compile_plan
from tscompile.rules import RULES, OpTypes, Rule, Strategy
from tscompile.simulate.errors import SimulationDiverged, SimulationStuck
from tscompile.simulate.simulate import simulate
from tskernels.errors import TsError
from tsruntime.artifact.proof.checker import check_proof

PLACEMENTS: tuple[Placement, ...] = (REPLICATE, PARTIAL, Shard(0), Shard(1))


@dataclass(frozen=True)
class Falsehood:
    """One placement of the `index`-th strategy of `op` replaced; `alone`: its only strategy."""

    op: str
    index: int
    output: bool
    position: int
    placement: Placement
    alone: bool

    def of(self, strategy: Strategy) -> Strategy:
        field = strategy.outputs if self.output else strategy.inputs
        if self.position >= len(field):
            return strategy
        changed = (*field[: self.position], self.placement, *field[self.position + 1 :])
        if self.output:
            return replace(strategy, outputs=changed)
        return replace(strategy, inputs=changed)

    def rule(self) -> Rule:
        true = RULES[self.op]

        def strategies(types: OpTypes) -> tuple[Strategy, ...]:
            told = list(true.strategies(types))
            if self.index < len(told):
                told[self.index] = self.of(told[self.index])
                return (told[self.index],) if self.alone else tuple(told)
            return tuple(told)

        return replace(true, strategies=strategies)


def falsehoods() -> Iterator[Falsehood]:
    for op in RULES:
        for index in range(5):
            for output, position in ((True, 0), (False, 0), (False, 1), (False, 2)):
                for placement in PLACEMENTS:
                    for alone in (True, False):
                        yield Falsehood(op, index, output, position, placement, alone)


def request(family: Family) -> CompileRequest:
    config = tiny_model_config(
        family,
        num_hidden_layers=1,
        attention_bias=True,
        mlp_bias=True,
        hidden_size=24,
        intermediate_size=24,
        num_attention_heads=6,
        vocab_size=24,
    )
    return tiny_request(config, 3, buckets=Buckets((2,), ((8, 2),)), limits=LimitsRequest(32, 2, 8))


def passes_and_is_wrong(falsehood: Falsehood, monkeypatch: pytest.MonkeyPatch) -> bool:
    asked = request("llama3")
    rules = {**RULES, falsehood.op: falsehood.rule()}
    with monkeypatch.context() as patched:
        patched.setattr(choice, "RULES", rules)
        patched.setattr(invariants, "RULES", rules)
        try:
            plan = compile_plan(asked).plan
            certificate = certify(asked)
            check_proof(plan, certificate)
        except TsError:
            return False
    try:
        simulate(plan, certificate, rounds=1)
    except (SimulationDiverged, SimulationStuck):
        return True
    return False


def test_lies_that_are_told_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias said to be added on each rank: the compiler believes it, the checker does not."""
    asked = request("llama3")
    lie = Falsehood("linear", 2, output=False, position=2, placement=REPLICATE, alone=False)
    rules = {**RULES, "linear": lie.rule()}
    monkeypatch.setattr(choice, "RULES", rules)
    monkeypatch.setattr(invariants, "RULES", rules)
    plan = compile_plan(asked).plan
    with pytest.raises(TsError, match="TS0507"):
        check_proof(plan, certify(asked))


def test_some_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(4).sample(list(falsehoods()), 20)
    assert [lie for lie in chosen if passes_and_is_wrong(lie, monkeypatch)] == []


@pytest.mark.nightly
def test_every_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [lie for lie in falsehoods() if passes_and_is_wrong(lie, monkeypatch)] == []
