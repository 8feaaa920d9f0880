"""Log-probabilities against torch's, and the likeliest tokens against sorting all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsruntime.sampling.logprobs import largest, logprobs_of


@pytest.mark.parametrize("count", [0, 1, 5, 20, 997])
def test_values_are_those_of_torch(count: int) -> None:
    logits = np.random.default_rng(count).normal(scale=8.0, size=997).astype(np.float32)
    expected = torch.tensor(logits, dtype=torch.float64).log_softmax(-1)
    found = logprobs_of(logits, 41, count)
    best = expected.topk(count)
    ids: list[int] = [int(place) for place in best.indices]
    assert found.logprob == pytest.approx(float(expected[41]), abs=1e-12)
    assert [id_ for id_, _ in found.top] == ids
    np.testing.assert_allclose([value for _, value in found.top], best.values, atol=1e-12)


def test_a_token_that_cannot_be_has_no_probability() -> None:
    logits = np.array([0.0, -np.inf, 0.0], np.float32)
    found = logprobs_of(logits, 1, 3)
    assert found.logprob == -np.inf
    assert [id_ for id_, _ in found.top] == [0, 2, 1]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.integers(0, 25))
def test_ties_go_to_the_lowest_ids(numbers: list[int], count: int) -> None:
    logits = np.array(numbers, np.float32)
    order = sorted(range(len(numbers)), key=lambda place: (-numbers[place], place))
    assert largest(logits, count).tolist() == order[:count]
