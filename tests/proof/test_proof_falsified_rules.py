"""A compiler whose rules lie makes no plan that passes the checker and simulates wrong."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Literal, TypeAlias

import pytest
from drawn_plans import Dims, Setup

from tscompile.cost.model import FREE, Price
from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tscompile.passes.pipeline import compile_plan
from tscompile.rules import RULES, OpTypes, Rule, Strategy
from tscompile.search import reading
from tscompile.search.exchange import IMPOSSIBLE, exchange_price
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
AWAY = Setup("qwen3_moe", ParallelSizes(2, 1, 1, 1, 2), _DIMS)
LATENT = Setup("deepseek", ParallelSizes(4, 2, 2, 1, 2), replace(_DIMS, layers=2))
QUANTIZED = Setup("llama3", ParallelSizes(4, 2, 4), replace(_DIMS, block=2))
SINKS = Setup("gpt_oss", ParallelSizes(4, 2, 2, 2, 2), replace(_DIMS, layers=2))

OF_OP: Mapping[str, tuple[Setup, ...]] = {
    "route": (SPARSE, SINKS),
    "experts": (SPARSE, SINKS),
    "attention": (DENSE, SINKS),
    "mla": (LATENT,),
    "latent_write": (LATENT,),
    "narrow": (LATENT,),
    "split": (LATENT,),
    "scaled_linear": (QUANTIZED,),
}
"""The setups that have the op, each in its own way; others are in every model."""

Source: TypeAlias = Literal["strategies", "by_replica", "by_sharing", "exchanges"]

OF_SOURCE: Mapping[Source, tuple[Setup, ...]] = {
    "by_replica": (REPLICAS,),
    "by_sharing": (SHARED,),
    "exchanges": (AWAY,),
}


@dataclass(frozen=True)
class Falsehood:
    """One placement of a strategy of `op` replaced.

    Of its `strategies` it is the one at `index`; `alone`: the only one that is told.
    """

    setup: Setup
    op: str
    source: Source
    index: int
    output: bool
    position: int
    placement: Placement
    alone: bool = False

    def of(self, strategy: Strategy) -> Strategy:
        field = strategy.outputs if self.output else strategy.inputs
        if self.position >= len(field):
            return strategy
        changed = (*field[: self.position], self.placement, *field[self.position + 1 :])
        if self.output:
            return replace(strategy, outputs=changed)
        return replace(strategy, inputs=changed)

    def can_be_told(self, types: OpTypes) -> bool:
        """Whether the operand has the dim."""
        field = types.outputs if self.output else types.inputs
        if self.position >= len(field) or (type_ := field[self.position]) is None:
            return False
        return not isinstance(self.placement, Shard) or self.placement.dim < len(type_.shape)

    def rule(self) -> Rule:
        true = RULES[self.op]
        if self.source == "by_replica":
            assert true.by_replica is not None
            return replace(true, by_replica=self.of(true.by_replica))
        if self.source == "by_sharing":
            assert true.by_sharing is not None
            return replace(true, by_sharing=self.of(true.by_sharing))
        if self.source == "exchanges":
            told = tuple(self.of(strategy) for strategy in true.exchanges)
            return replace(true, exchanges=told)
        return replace(true, strategies=self._strategies)

    def _strategies(self, types: OpTypes) -> tuple[Strategy, ...]:
        told = list(RULES[self.op].strategies(types))
        if self.index >= len(told) or not self.can_be_told(types):
            return tuple(told)
        told[self.index] = self.of(told[self.index])
        return (told[self.index],) if self.alone else tuple(told)


def falsehoods() -> Iterator[Falsehood]:
    """Every placement of every strategy replaced by every other one."""
    for op, rule in RULES.items():
        schema = OPS[op].schema
        places = [
            *((True, position) for position in range(len(schema.outputs))),
            *((False, position) for position in range(len(schema.inputs))),
        ]
        for (output, position), placement in product(places, PLACEMENTS):
            lie = partial(Falsehood, output=output, position=position, placement=placement)
            for setup, source in _special(op, rule):
                yield lie(setup, op, source, 0)
            for setup in OF_OP.get(op, (DENSE,)):
                for index, alone in product(range(5), (True, False)):
                    yield lie(setup, op, "strategies", index, alone=alone)


def _special(op: str, rule: Rule) -> Iterator[tuple[Setup, Source]]:
    """Where the strategies that hold only along some axes can be told wrong."""
    for source, setups in OF_SOURCE.items():
        if getattr(rule, source):
            for setup in setups if source == "exchanges" else OF_OP.get(op, setups):
                yield setup, source


def _free(*arguments: object) -> Price:
    """An exchange costs nothing, so that it is chosen wherever it can be described."""
    found = exchange_price(*arguments)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return found if found == IMPOSSIBLE else FREE


def compiled(lie: Falsehood, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Certificate]:
    """What a compiler that believes the lie makes of its setup."""
    request = lie.setup.request()
    rules = {**RULES, lie.op: lie.rule()}
    with monkeypatch.context() as patched:
        for name, module in list(sys.modules.items()):
            if name.startswith("tscompile.") and getattr(module, "RULES", None) is RULES:
                patched.setattr(module, "RULES", rules)
        if lie.source == "exchanges":
            patched.setattr(reading, "exchange_price", _free)
        return compile_plan(request).plan, certify(request)


@cache
def _honest(setup: Setup) -> Plan:
    """The plan that the true rules give."""
    return compile_plan(setup.request()).plan


def passes_and_is_wrong(lie: Falsehood, monkeypatch: pytest.MonkeyPatch) -> bool:
    try:
        plan, certificate = compiled(lie, monkeypatch)
    except (TsError, AssertionError, IndexError, ValueError):  # a compiler that stops makes no plan
        return False
    if plan == _honest(lie.setup):  # the lie was not chosen; that plan is right (equivalence)
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
        Falsehood(DENSE, "linear", "strategies", 2, False, 2, REPLICATE),
        Falsehood(SPARSE, "experts", "strategies", 1, True, 0, REPLICATE),
        Falsehood(SINKS, "experts", "strategies", 2, False, 8, REPLICATE),
        Falsehood(DENSE, "embedding", "strategies", 1, True, 0, REPLICATE),
        Falsehood(SINKS, "attention", "strategies", 0, False, 2, Shard(1)),
        Falsehood(QUANTIZED, "scaled_linear", "strategies", 4, False, 2, PARTIAL),
    ],
    ids=lambda lie: f"{lie.op}-{lie.source}",
)
def test_lies_that_are_told_are_refused(lie: Falsehood, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler believes them, the checker not.

    A bias on each rank, a sum that is whole, half a block table, scales that are zero but on one
    rank.
    """
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
