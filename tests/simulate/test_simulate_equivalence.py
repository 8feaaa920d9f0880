"""Whatever hypothesis draws: the checker accepts the plan, and every value is the unsharded one.

Models, sizes of the groups, buckets, batches (uneven and idle replicas, decodes after prefills).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import drawn_plans
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from proof.handmade import Sizes, Spread, certificate_of, handmade_plan, tiny_config

from tscompile.ir.mesh import ParallelSizes
from tscompile.simulate.simulate import TOLERANCE, simulate
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.schema import Plan

WORLD = 16


@st.composite
def spreads(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Spread:
    """One to three axes of 2 to 4 ranks; each group takes any of them, in order.

    Rows that are cut are sliced, then scattered: that keeps their order only where the axes over
    which they are scattered come before those over which they are sliced.
    """
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    assume(math.prod(sizes) <= WORLD)
    axes = dict(zip("abc", sizes, strict=False))
    subset = st.lists(st.sampled_from(sorted(axes)), unique=True).map(lambda x: tuple(sorted(x)))
    attn, dense, cut_rows = draw(subset), draw(subset), draw(st.booleans())
    everyone = (*attn, *(axis for axis in dense if axis not in attn))
    assume(not cut_rows or everyone == tuple(sorted(everyone, key=lambda axis: axis not in dense)))
    return Spread(axes, attn, dense, cut_rows)


@dataclass(frozen=True)
class Case:
    """A model, how it is spread, and the tokens and sequences of its two programs."""

    spread: Spread
    changes: dict[str, int]
    rows: int
    tokens: int
    sequences: int
    seed: int

    def run(self) -> None:
        config = tiny_config(**self.changes)
        certificate = certificate_of(config)
        sizes: list[Sizes] = [
            ("decode", self.rows, self.rows),
            ("extend", self.tokens, self.sequences),
        ]
        agrees(handmade_plan(certificate, config, self.spread, sizes), certificate, self.seed)


@st.composite
def handmade(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Case:
    spread: Spread = draw(spreads())
    attn, dense = (spread.mesh.size(axes) for axes in (spread.attn, spread.dense))
    kv_heads = attn * draw(st.integers(1, 2))
    changes = {
        "vocab_size": draw(st.integers(20, 40)),
        "hidden_size": draw(st.sampled_from((8, 12, 20))),
        "intermediate_size": dense * draw(st.integers(2, 4)),
        "num_attention_heads": kv_heads * draw(st.integers(1, 3)),
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.sampled_from((2, 4, 6))),
        "num_hidden_layers": draw(st.integers(1, 2)),
    }
    tokens = attn * draw(st.integers(2, 4))
    return Case(
        spread=spread,
        changes=changes,
        rows=attn * draw(st.integers(1, 3)),
        tokens=tokens,
        sequences=draw(st.integers(1, min(tokens, 4))),
        seed=draw(st.integers(0, 1000)),
    )


def agrees(plan: Plan, certificate: Certificate, seed: int) -> None:
    check_proof(plan, certificate)
    simulate(plan, certificate, seed=seed, rounds=2)


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )


@examples(8)
@given(handmade())
def test_handmade(case: Case) -> None:
    case.run()


@pytest.mark.timeout(1200)
@examples(100)
@given(drawn_plans.cases(st.sampled_from(drawn_plans.fixed_setups(24))))
def test_compiled(case: drawn_plans.Case) -> None:
    assert case.worst() <= TOLERANCE


def test_a_weight_is_not_taken_for_rows() -> None:
    """Six sinks are a row for each of five replicas, and one."""
    dims = drawn_plans.Dims(shared=3, head_dim=6, width=2, experts=2, vocabulary=28, batch=4,
                            tokens=5, decodes=True)  # fmt: skip
    setup = drawn_plans.Setup("gpt_oss", ParallelSizes(15, 3, 3), dims)
    case = drawn_plans.Case(setup, 757, ((2, 1, 1, 1), (2,), (1,), (1,), (1,)), ((1, 1, 0, 0, 0),))
    assert case.worst() <= TOLERANCE


@pytest.mark.nightly
@pytest.mark.timeout(14400)
@examples(1000)
@given(handmade())
def test_handmade_at_length(case: Case) -> None:
    case.run()


@pytest.mark.nightly
@pytest.mark.timeout(14400)
@examples(2000)
@given(drawn_plans.cases(drawn_plans.setups(range(1, WORLD + 1))))
def test_compiled_at_length(case: drawn_plans.Case) -> None:
    assert case.worst() <= TOLERANCE
