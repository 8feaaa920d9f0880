"""Filters and penalties against transformers' logits processors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tsruntime.sampling.filters import candidates, keep_top_p
from tsruntime.sampling.params import SamplingParams
from tsruntime.sampling.penalties import TokenCounts, apply_penalties

VOCAB = 997

CASES = (
    SamplingParams(1, temperature=0.7),
    SamplingParams(1, temperature=1.3, top_k=40),
    SamplingParams(1, top_k=1),
    SamplingParams(1, top_k=5000),
    SamplingParams(1, top_p=0.9),
    SamplingParams(1, temperature=4.0, top_p=0.95),
    SamplingParams(1, temperature=0.05, top_p=0.99),
    SamplingParams(1, top_p=1e-6),
    SamplingParams(1, min_p=0.05),
    SamplingParams(1, min_p=1.0),
    SamplingParams(1, temperature=0.9, min_p=0.01, top_k=30, top_p=0.8),
    SamplingParams(1, temperature=2.0, top_k=300, top_p=0.5, repetition_penalty=1.3),
    SamplingParams(1, repetition_penalty=0.7),
)


def draw_logits(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(scale=3.0, size=VOCAB).astype(np.float32)


def oracle(
    logits: NDArray[np.float32], params: SamplingParams, seen: list[int]
) -> NDArray[np.float64]:
    """Probabilities [V] by transformers, in vLLM's order of operations."""
    processors: list[Callable[[torch.LongTensor, torch.FloatTensor], torch.Tensor]] = []
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    processors.append(TemperatureLogitsWarper(params.temperature))
    if params.min_p > 0.0:
        processors.append(MinPLogitsWarper(params.min_p))
    if params.top_k > 0:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    scores = cast("torch.FloatTensor", torch.tensor(logits, dtype=torch.float64)[None])
    tokens = cast("torch.LongTensor", torch.tensor([seen]))
    for processor in processors:
        scores = cast("torch.FloatTensor", processor(tokens, scores))
    return scores[0].softmax(-1).numpy()


def ours(
    logits: NDArray[np.float32], params: SamplingParams, seen: list[int]
) -> NDArray[np.float64]:
    logits = logits.copy()
    apply_penalties(logits, params, TokenCounts(seen, ()))
    left = candidates(logits, params)
    dense = np.zeros(VOCAB)
    dense[left.ids] = np.exp(left.scores) / np.exp(left.scores).sum()
    return dense


@pytest.mark.parametrize("params", CASES, ids=str)
def test_filtered_distribution_equals_transformers(params: SamplingParams) -> None:
    for seed in range(20):
        logits = draw_logits(seed)
        seen = [int(i) for i in np.random.default_rng(seed).integers(0, VOCAB, 200)]
        expected = oracle(logits, params, seen)
        actual = ours(logits, params, seen)
        assert set(np.flatnonzero(actual)) == set(np.flatnonzero(expected))
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=0)


def test_top_p_on_a_flat_distribution_sorts_beyond_the_likely_tokens() -> None:
    logits = np.linspace(0.0, -40.0, VOCAB, dtype=np.float32)
    params = SamplingParams(1, temperature=3.0, top_p=0.999)
    assert set(np.flatnonzero(ours(logits, params, []))) == set(
        np.flatnonzero(oracle(logits, params, [0]))
    )


def test_top_p_keeps_the_lowest_ids_of_a_tie() -> None:
    left = candidates(np.zeros(10, np.float32), SamplingParams(1))
    assert keep_top_p(left, 0.35).ids.tolist() == [0, 1, 2, 3]


def test_excluded_tokens_are_no_candidates() -> None:
    logits = np.array([1.0, -np.inf, 0.5, -np.inf], np.float32)
    assert candidates(logits, SamplingParams(1)).ids.tolist() == [0, 2]


@pytest.mark.parametrize("temperature", [1e-320, 1e-9, 1e300])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    left = candidates(draw_logits(3), SamplingParams(1, temperature=temperature, top_p=0.9))
    assert len(left.ids) >= 1
    assert np.isfinite(left.scores).all()
    assert left.scores.max() == 0.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [1e-320, 1e-300, 1e-39, 1e-30, 1.0])
def test_a_nucleus_of_scores_beyond_float32_is_the_most_likely_tokens(temperature: float) -> None:
    """3e38 apart, or 1 apart at so low a temperature: the rest has no probability at all."""
    apart = 3e38 if temperature == 1.0 else 1.0
    logits = np.array([0.0, -apart, apart, apart, -1.1 * apart], np.float32)
    left = candidates(logits, SamplingParams(1, temperature=temperature, top_p=0.999))
    assert left.ids.tolist() == [2, 3]
    assert left.scores.tolist() == [0.0, 0.0]
    left = candidates(logits, SamplingParams(1, temperature=temperature, top_p=0.5))
    assert left.ids.tolist() == [2]


@pytest.mark.filterwarnings("error")
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=40),
    st.floats(5e-324, 1e300),
    st.floats(1e-6, 1.0),
)
def test_any_finite_logits_have_the_nucleus_of_long_doubles(
    logits: list[float], temperature: float, top_p: float
) -> None:
    left = candidates(
        np.array(logits, np.float32), SamplingParams(1, temperature=temperature, top_p=top_p)
    )
    exact = np.array(logits, np.float32).astype(np.longdouble)
    weights = np.exp((exact - exact.max()) / np.longdouble(temperature))
    share = weights[left.ids].sum() / weights.sum()
    assert share >= top_p * (1 - 1e-6)
    least = weights[left.ids].min()
    assert (share - least / weights.sum()) <= top_p * (1 + 1e-6)
    dropped = np.delete(weights, left.ids)
    assert (dropped <= least * (1 + 1e-6)).all()


def test_presence_and_frequency_follow_the_published_formula() -> None:
    """mu[j] -> mu[j] - c[j] * frequency - (c[j] > 0) * presence, c counting output alone."""
    logits = draw_logits(1)
    prompt, output = [1, 2, 3, 3], [3, 4, 4, 4, 900]
    params = SamplingParams(1, presence_penalty=0.5, frequency_penalty=0.25)
    actual = logits.copy()
    apply_penalties(actual, params, TokenCounts(prompt, output))
    counts = Counter(output)
    for token in range(VOCAB):
        expected = logits[token] - 0.25 * counts[token] - 0.5 * (counts[token] > 0)
        assert actual[token] == pytest.approx(expected, abs=1e-6)


def test_token_counts_grow_with_the_output() -> None:
    counts = TokenCounts(range(50), ())
    for token in [*range(300), *range(10)]:
        counts.add(token)
    table = dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True))
    assert table == {token: 2.0 if token < 10 else 1.0 for token in range(300)}
