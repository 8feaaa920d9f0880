"""A compiler whose rules lie makes no plan that passes the checker and simulates wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import pytest
from drawn_plans import Dims, Setup

from tscompile.freeze.certificate import certify
from tscompile.ir import invariants
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tscompile.passes import check_annotations
from tscompile.passes.pipeline import compile_plan
from tscompile.rules import RULES, OpTypes, Rule, Strategy
from tscompile.search import reading, writing
from tscompile.simulate.errors import SimulationDiverged, SimulationStuck
from tscompile.simulate.simulate import simulate
from tskernels.errors import TsError
from tskernels.ops import OPS
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.schema import Plan

PLACEMENTS: tuple[Placement, ...] = (REPLICATE, PARTIAL, Shard(0), Shard(1))

_DIMS = Dims(vocabulary=24, hidden=2, width=4, bias=True, batch=2, tokens=8)
DENSE = Setup("llama3", ParallelSizes(3, 3, 3), _DIMS)
REPLICAS = Setup("llama3", ParallelSizes(4, 2, 4), _DIMS)
SHARED = Setup("llama3", ParallelSizes(4, 4, 4), replace(_DIMS, shared=2))
SPARSE = Setup("qwen3_moe", ParallelSizes(4, 2, 2, 2, 2), _DIMS)
LATENT = Setup("deepseek", ParallelSizes(4, 2, 2, 1, 2), replace(_DIMS, layers=2))

OF_OP: Mapping[str, Setup] = {
    "route": SPARSE,
    "experts": SPARSE,
    "mla": LATENT,
    "latent_write": LATENT,
    "narrow": LATENT,
    "split": LATENT,
}
"""The setup that has the op; others are in every model."""

Source: TypeAlias = Literal["strategies", "by_replica", "by_sharing"]


@dataclass(frozen=True)
class Falsehood:
    """One placement of a strategy of `op` replaced.

    Of its `strategies` it is the one at `index`; `alone`: the only one that is told.
    """

    op: str
    source: Source
    index: int
    output: bool
    position: int
    placement: Placement
    alone: bool = False

    @property
    def setup(self) -> Setup:
        """Where the lie can be told."""
        of_source = {"by_replica": REPLICAS, "by_sharing": SHARED}
        return OF_OP.get(self.op) or of_source.get(self.source, DENSE)

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
        if self.source == "by_replica":
            assert true.by_replica is not None
            return replace(true, by_replica=self.of(true.by_replica))
        if self.source == "by_sharing":
            assert true.by_sharing is not None
            return replace(true, by_sharing=self.of(true.by_sharing))

        def strategies(types: OpTypes) -> tuple[Strategy, ...]:
            told = list(true.strategies(types))
            if self.index < len(told):
                told[self.index] = self.of(told[self.index])
                return (told[self.index],) if self.alone else tuple(told)
            return tuple(told)

        return replace(true, strategies=strategies)


def falsehoods() -> Iterator[Falsehood]:
    """Every placement of every strategy replaced by every other one."""
    for op, rule in RULES.items():
        schema = OPS[op].schema
        places = [
            *((True, position) for position in range(len(schema.outputs))),
            *((False, position) for position in range(len(schema.inputs))),
        ]
        for output, position in places:
            for placement in PLACEMENTS:
                if rule.by_replica is not None:
                    yield Falsehood(op, "by_replica", 0, output, position, placement)
                if rule.by_sharing is not None:
                    yield Falsehood(op, "by_sharing", 0, output, position, placement)
                for index in range(5):
                    for alone in (True, False):
                        yield Falsehood(op, "strategies", index, output, position, placement, alone)


def compiled(lie: Falsehood, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Certificate]:
    """What a compiler that believes the lie makes of its setup."""
    request = lie.setup.request()
    rules = {**RULES, lie.op: lie.rule()}
    with monkeypatch.context() as patched:
        for module in (reading, writing, invariants, check_annotations):
            patched.setattr(module, "RULES", rules)
        return compile_plan(request).plan, certify(request)


def passes_and_is_wrong(lie: Falsehood, monkeypatch: pytest.MonkeyPatch) -> bool:
    try:
        plan, certificate = compiled(lie, monkeypatch)
    except (TsError, AssertionError):
        return False
    try:
        check_proof(plan, certificate)
    except TsError:
        return False
    try:
        simulate(plan, certificate, rounds=1)
    except (SimulationDiverged, SimulationStuck):
        return True
    return False


@pytest.mark.parametrize(
    "lie",
    [
        Falsehood("linear", "strategies", 2, output=False, position=2, placement=REPLICATE),
        Falsehood("experts", "strategies", 1, output=True, position=0, placement=REPLICATE),
        Falsehood("embedding", "strategies", 1, output=True, position=0, placement=REPLICATE),
    ],
    ids=lambda lie: f"{lie.op}-{lie.source}",
)
def test_lies_that_are_told_are_refused(lie: Falsehood, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler believes them (a bias on each rank, a sum that is whole), the checker not."""
    plan, certificate = compiled(lie, monkeypatch)
    with pytest.raises(TsError, match="TS050"):
        check_proof(plan, certificate)


def test_some_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(4).sample(list(falsehoods()), 10)
    assert [lie for lie in chosen if passes_and_is_wrong(lie, monkeypatch)] == []


@pytest.mark.nightly
@pytest.mark.timeout(14400)
def test_every_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [lie for lie in falsehoods() if passes_and_is_wrong(lie, monkeypatch)] == []
