"""What a device is told of the requests in its slots, so that it draws as `Sampler` does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tskernels.ops.sampling import words
from tskernels.ops.sampling.words import DrawKind
from tsruntime.executor.batch import Draws, Ints
from tsruntime.sampling.noise import seed_key, stream_keys
from tsruntime.sampling.params import SamplingParams
from tsruntime.sampling.penalties import penalizes

Masks: TypeAlias = Mapping[int, NDArray[np.bool_]]
"""By a step's row: which tokens [V] may be drawn."""


class DrawTable:
    """Sampling parameters of every slot, as words; counts and biases are the device's.

    A step's draws are asked for when it is launched, before the tokens of the one before may be
    known: nothing here depends on tokens, but on how many there are.
    """

    def __init__(self, vocab_size: int, max_batch: int) -> None:
        self._vocab_size = vocab_size
        self._rows = np.zeros((max_batch, words.ROW_WORDS), np.int32)
        self._seeds = np.zeros(max_batch, np.uint64)
        self._generated = np.zeros(max_batch, np.int64)
        self._banned_until = np.zeros(max_batch, np.int64)
        self._plain = np.ones(max_batch, np.bool_)
        self._asks = np.zeros(max_batch, np.bool_)
        self._logprobs: list[int | None] = [None] * max_batch
        self._pasts: list[Ints] = []

    def restore(
        self, slot: int, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
    ) -> None:
        """Give `slot` to a request that has generated `output` already."""
        bans = params.min_tokens if params.stop_token_ids else 0
        biased = bool(params.logit_bias)
        self._rows[slot] = row_words(params)
        self._seeds[slot] = seed_key(params.seed)
        self._generated[slot] = len(output)
        self._banned_until[slot] = bans
        self._plain[slot] = params.temperature == 0.0 and not penalizes(params) and not biased
        self._asks[slot] = params.logprobs is not None
        self._logprobs[slot] = params.logprobs
        if penalizes(params) or biased or len(output) < bans:
            self._pasts.append(past_words(slot, params, prompt, output, self._vocab_size))

    def logprobs(self, slot: int) -> int | None:
        """How many likeliest tokens the slot's request wants to see; None if it asks for none."""
        return self._logprobs[slot]

    def draws(
        self, slots: Ints, positions: Ints, samples: NDArray[np.bool_], masks: Masks | None = None
    ) -> Draws:
        """How a step's rows are drawn: of each its slot, its noise's position, if it is used.

        Counts the tokens of rows that are.
        """
        banned = self._generated[slots] < self._banned_until[slots]
        full = samples & (banned | ~self._plain[slots])
        asked = bool((samples & self._asks[slots]).any())
        self._generated[slots[samples]] += 1
        kind = DrawKind.of(full=bool(full.any()) or bool(masks), logprobs=asked)
        rows = np.empty((0, words.ROW_WORDS), np.int32)
        if kind.full:
            rows = self._rows[slots] * samples[:, None]
            rows[:, words.FLAGS] |= np.where(banned & samples, words.STOPS_BANNED, 0)
            keys = stream_keys(self._seeds[slots], positions)
            rows[:, words.STREAM : words.STREAM + 2] = keys.view(np.int32).reshape(-1, 2)
        none = np.empty(0, np.int32)
        pasts = np.concatenate(self._pasts) if self._pasts else none
        self._pasts.clear()
        masked, allowed = none, np.empty((0, words.mask_words(self._vocab_size)), np.int32)
        if masks:
            masked = np.array(list(masks), np.int32)
            allowed = np.stack([packed(mask) for mask in masks.values()])
            rows[masked, words.FLAGS] |= words.MASKED
        return Draws(kind, rows, pasts, masked, allowed)


def row_words(params: SamplingParams) -> Ints:
    """The words of a row that do not change from step to step."""
    row = np.zeros(words.ROW_WORDS, np.int32)
    counted = penalizes(params)
    flags = words.COUNTED | words.PENALIZED if counted else 0
    row[words.FLAGS] = flags | (words.BIASED if params.logit_bias else 0)
    row[words.TOP_K] = min(params.top_k, np.iinfo(np.int32).max)
    least = math.log(params.min_p) if params.min_p > 0.0 else -math.inf
    for place, number in (
        (words.TEMPERATURE, params.temperature),
        (words.LOG_MIN_P, least),
        (words.TOP_P, params.top_p),
    ):
        row[place : place + 2] = np.array([number], np.float64).view(np.int32)
    for place, number in (
        (words.REPETITION, params.repetition_penalty),
        (words.FREQUENCY, params.frequency_penalty),
        (words.PRESENCE, params.presence_penalty),
    ):
        row[place : place + 1] = np.array([number], np.float32).view(np.int32)
    return row


def past_words(
    slot: int,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    vocab_size: int,
) -> Ints:
    """What a slot's counts and biases are rebuilt from."""
    seen, made = (prompt, output) if penalizes(params) else ((), ())
    stops = [token for token in dict.fromkeys(params.stop_token_ids) if 0 <= token < vocab_size]
    biased = [token for token, _ in params.logit_bias]
    values = np.array([bias for _, bias in params.logit_bias], np.float32).view(np.int32)
    counts = [slot, len(seen), len(made), len(stops), len(biased)]
    header = np.array(counts + [0] * (words.PAST_HEADER - len(counts)), np.int32)
    ids = np.array([*seen, *made, *stops, *biased], np.int32)
    size = len(header) + len(ids) + len(values)
    padding = np.zeros(-size % words.PAST_STEP, np.int32)
    return np.concatenate([header, ids, values, padding])


def packed(mask: NDArray[np.bool_]) -> Ints:
    """A mask [V] as the words of a row."""
    missing = -len(mask) % 32
    bits = np.packbits(np.pad(mask, (0, missing)), bitorder="little")
    return bits.view(np.int32)
