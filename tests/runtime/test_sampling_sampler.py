"""The sampler: distribution of its draws, independence of the batch, per-slot state."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from tsruntime.sampling.params import SamplingParams
from tsruntime.sampling.sampler import NotFiniteError, Sampler

VOCAB = 64


def random_logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def one(params: SamplingParams, logits: torch.Tensor, steps: int, slot: int = 0) -> list[int]:
    """Tokens of one request alone, given the same logits row [1, V] at every step."""
    sampler = Sampler(VOCAB, 8)
    sampler.admit(slot, params, [1, 2, 3])
    return [int(sampler.sample(logits, [slot], [3 + step])[0]) for step in range(steps)]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(1),
        SamplingParams(1, temperature=1.6, top_p=0.9),
        SamplingParams(1, temperature=1.5, top_k=8),
    ],
    ids=str,
)
def test_frequencies_of_draws_match_the_distribution(params: SamplingParams) -> None:
    """Pearson's chi-square; below df + 4 sqrt(2 df) but for about one seed in ten thousand."""
    logits = random_logits(1)
    scores = logits[0].double() / params.temperature
    if params.top_k:
        scores[scores < scores.topk(params.top_k).values[-1]] = -torch.inf
    probability = scores.softmax(-1)
    if params.top_p < 1:
        order = probability.argsort(descending=True)
        before = probability[order].cumsum(0) - probability[order]
        probability[order[before >= params.top_p]] = 0
        probability /= probability.sum()
    draws = 6_000
    drawn = Counter(one(replace(params, seed=17), logits, draws))
    expected = {token: draws * float(p) for token, p in enumerate(probability) if p > 0}
    assert set(drawn) <= set(expected)
    cells = [(drawn[t], e) for t, e in expected.items() if e >= 5]
    rare = sum(drawn[t] for t, e in expected.items() if e < 5)
    statistic = sum((observed - e) ** 2 / e for observed, e in cells)
    degrees = len(cells) - 1
    assert statistic < degrees + 4 * np.sqrt(2 * degrees)
    assert rare <= 5 * len(expected)


def test_draws_at_neighbouring_positions_and_seeds_are_uncorrelated() -> None:
    flat = torch.zeros(1, VOCAB)
    by_position = one(SamplingParams(1, seed=1), flat, 6_000)
    pairs = Counter(pairwise(by_position))
    expected = (len(by_position) - 1) / VOCAB**2
    statistic = sum((pairs[a, b] - expected) ** 2 for a in range(VOCAB) for b in range(VOCAB))
    degrees = VOCAB**2 - 1
    assert statistic / expected < degrees + 4 * np.sqrt(2 * degrees)
    by_seed = Counter(one(SamplingParams(1, seed=s), flat, 1)[0] for s in range(6_400))
    spread = sum((by_seed[t] - 100) ** 2 / 100 for t in range(VOCAB))
    assert spread < 63 + 4 * np.sqrt(2 * 63)


def test_same_seed_same_tokens_and_another_seed_others() -> None:
    logits = random_logits(1)
    first = one(SamplingParams(1, seed=5), logits, 50)
    assert first == one(SamplingParams(1, seed=5), logits, 50, slot=6)
    assert first != one(SamplingParams(1, seed=6), logits, 50)


def test_a_row_does_not_depend_on_its_batch() -> None:
    params = [
        SamplingParams(9, seed=1),
        SamplingParams(9, temperature=0.0, frequency_penalty=0.5),
        SamplingParams(9, seed=3, top_p=0.8, repetition_penalty=1.2),
        SamplingParams(9, seed=4, top_k=5, min_p=0.1),
    ]
    logits = random_logits(4)
    alone = [one(p, logits[i : i + 1], 20, slot=i) for i, p in enumerate(params)]
    sampler = Sampler(VOCAB, 8)
    for slot, p in enumerate(params):
        sampler.admit(slot, p, [1, 2, 3])
    together: list[list[int]] = [[], [], [], []]
    for step in range(20):
        order = [0, 1, 2, 3] if step % 2 else [2, 0, 3, 1]
        tokens = sampler.sample(logits[order], order, [3 + step] * 4)
        assert tokens.dtype == np.int32
        for slot, token in zip(order, tokens, strict=True):
            together[slot].append(int(token))
    assert together == alone


def test_greedy_takes_the_lowest_id_of_a_tie() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [40, 9, 33]] = 2.5
    assert one(SamplingParams(1, temperature=0.0), logits, 1) == [9]


def test_logits_are_left_as_they_were() -> None:
    logits = random_logits(1)
    before = logits.clone()
    one(SamplingParams(9, repetition_penalty=2.0, min_tokens=4, stop_token_ids=(3,)), logits, 3)
    assert torch.equal(logits, before)


def test_stop_tokens_wait_for_min_tokens() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 7], logits[0, 8] = 9.0, 5.0
    params = SamplingParams(9, temperature=0.0, min_tokens=2, stop_token_ids=(7,))
    assert one(params, logits, 4) == [8, 8, 7, 7]


def test_repetition_counts_prompt_and_output_but_frequency_the_output_alone() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [1, 10, 11]] = torch.tensor([4.0, 3.0, 2.5])
    # Token 1 is in the prompt: 4 / 1.5 < 3, then 3 / 1.5 < 4 / 1.5, then 2.5 against 2.67.
    repetition = SamplingParams(9, temperature=0.0, repetition_penalty=1.5)
    assert one(repetition, logits, 3) == [10, 1, 1]
    # 4, then 4 - 1.2, then 3 - 1.2 and 2.8 against 2.5.
    frequency = SamplingParams(9, temperature=0.0, frequency_penalty=1.2)
    assert one(frequency, logits, 3) == [1, 10, 1]


def test_restored_request_goes_on_as_if_never_retracted() -> None:
    params = SamplingParams(
        99, seed=8, repetition_penalty=1.3, presence_penalty=0.4, min_tokens=20, stop_token_ids=(5,)
    )
    logits = random_logits(1)
    whole = one(params, logits, 30)
    sampler = Sampler(VOCAB, 8)
    sampler.admit(2, SamplingParams(9), [60, 61])  # the slot's earlier tenant leaves no trace
    sampler.restore(2, params, [1, 2, 3], whole[:12])
    rest = [int(sampler.sample(logits, [2], [3 + step])[0]) for step in range(12, 30)]
    assert rest == whole[12:]


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_poisoned_row_is_named(poison: float) -> None:
    logits = random_logits(1)
    logits[0, 3] = poison
    with pytest.raises(NotFiniteError, match=r"slot 0 at position 3 is (nan|inf)"):
        one(SamplingParams(1), logits, 1)


def test_wrong_shape_and_unknown_slot_are_refused() -> None:
    sampler = Sampler(VOCAB, 8)
    with pytest.raises(ValueError, match=r"float32 \[1, 63\], expected float32 \[1, 64\]"):
        sampler.sample(torch.zeros(1, VOCAB - 1), [0], [0])
    with pytest.raises(ValueError, match="slot 4 was never admitted"):
        sampler.sample(torch.zeros(1, VOCAB), [4], [0])
