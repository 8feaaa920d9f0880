"""Which tokens may be drawn: temperature, then min-p, top-k and top-p, in vLLM's order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tsruntime.sampling.params import SamplingParams

_NEAR: Final = -10.0
"""The nucleus nearly always lies within e**10 of the most likely token: sort only those first."""

_NOTHING: Final = -104.0
"""Here and below, exp rounds to 0 in float32: half of its least number is e**-103.97."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens that may be drawn, by rising id, with their unnormalised log-probabilities."""

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]

    def where(self, kept: NDArray[np.bool_]) -> Candidates:
        """The candidates for which `kept` [n] holds."""
        return Candidates(self.ids[kept], self.scores[kept])


def candidates(logits: NDArray[np.float32], params: SamplingParams) -> Candidates:
    """Tokens that `params` (with a temperature above 0) lets through, of finite `logits` [V].

    Scores are relative to the largest, in float64, so that no temperature overflows them. A logit
    of -inf excludes its token.
    """
    scores = logits.astype(np.float64) - float(logits.max())
    with np.errstate(over="ignore"):
        scores /= params.temperature
    left = Candidates(np.arange(len(logits)), scores)
    if np.isneginf(scores).any():
        left = left.where(~np.isneginf(scores))
    if params.min_p > 0.0:
        left = keep_min_p(left, params.min_p)
    if params.top_k > 0:
        left = keep_top_k(left, params.top_k)
    if params.top_p < 1.0:
        left = keep_top_p(left, params.top_p)
    return left


def keep_min_p(given: Candidates, min_p: float) -> Candidates:
    """Tokens at least `min_p` times as likely as the most likely one (Nguyen et al. 2024)."""
    return given.where(given.scores >= given.scores.max() + math.log(min_p))


def keep_top_k(given: Candidates, k: int) -> Candidates:
    """The `k` most likely tokens and any that tie with the last of them (Fan et al. 2018)."""
    if k >= len(given.ids):
        return given
    place = len(given.ids) - k
    return given.where(given.scores >= np.partition(given.scores, place)[place])


def keep_top_p(given: Candidates, top_p: float) -> Candidates:
    """The fewest most likely tokens whose probabilities reach `top_p` (Holtzman et al. 2019).

    At least one is kept. Of tokens that tie at the edge the lowest ids are kept.
    """
    weights = _weights(given.scores)
    target = top_p * float(weights.sum(dtype=np.float64))
    near = given.scores > _NEAR
    if float(weights[near].sum(dtype=np.float64)) < target:
        near = np.ones_like(near)
    falling = np.sort(given.scores[near])[::-1]
    reached = np.cumsum(_weights(falling), dtype=np.float64)
    count = min(int(np.searchsorted(reached, target, side="left")) + 1, len(falling))
    edge = falling[count - 1]
    kept = given.scores > edge
    tied = np.flatnonzero(given.scores == edge)
    kept[tied[: count - int(kept.sum())]] = True
    return given.where(kept)


def _weights(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Unnormalised probabilities [n]; a low temperature takes scores far beyond any float32."""
    return np.exp(np.maximum(scores, _NOTHING).astype(np.float32))
