"""Penalties on tokens that a request has already seen, with per-request counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tsruntime.sampling.params import SamplingParams

_FIRST_CAPACITY: Final = 64


def penalizes(params: SamplingParams) -> bool:
    """Whether `params` asks for any penalty, and so for token counts."""
    return (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


class TokenCounts:
    """How often each distinct token of one request was generated; a prompt token counts 0.

    Holds one entry for each distinct token, not for each token of the vocabulary.
    """

    def __init__(self, prompt: Iterable[int], output: Iterable[int]) -> None:
        self._places: dict[int, int] = {}
        self._ids = np.empty(_FIRST_CAPACITY, np.int64)
        self._counts = np.zeros(_FIRST_CAPACITY, np.float32)
        for token in prompt:
            self._place(token)
        for token in output:
            self.add(token)

    @property
    def ids(self) -> NDArray[np.int64]:
        """[distinct] token ids of prompt and output."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> NDArray[np.float32]:
        """[distinct] times that each of `ids` was generated."""
        return self._counts[: len(self._places)]

    def add(self, token: int) -> None:
        """Count one generated token."""
        place = self._place(token)  # may replace the array
        self._counts[place] += 1.0

    def _place(self, token: int) -> int:
        place = self._places.get(token)
        if place is None:
            place = len(self._places)
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._places[token] = place
            self._ids[place] = token
        return place


def apply_penalties(logits: NDArray[np.float32], params: SamplingParams, seen: TokenCounts) -> None:
    """Lower, in place, the logits [V] of the tokens in `seen`.

    Repetition (Keskar et al. 2019, CTRL) scales tokens of prompt and output: a positive logit is
    divided by it, a negative one multiplied. Then the OpenAI API's two, for the output alone:
    frequency times the count, and presence once.
    """
    ids, counts = seen.ids, seen.counts
    chosen = logits[ids]
    repetition = np.float32(params.repetition_penalty)
    chosen = np.where(chosen > 0, chosen / repetition, chosen * repetition)
    chosen -= np.float32(params.frequency_penalty) * counts
    chosen -= np.float32(params.presence_penalty) * (counts > 0)
    logits[ids] = chosen
