"""The int32 words in which a device is told how to draw: of each row, and of each slot's past.

Numbers of 64 bits take two words, the lower one first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

ROW_WORDS: Final = 16
"""Words of a row: flags, top_k, temperature (float64), log(min_p) (float64), top_p (float64), the
noise's stream (uint64), repetition, frequency and presence penalty (float32), three unused."""

FLAGS: Final = 0
TOP_K: Final = 1
TEMPERATURE: Final = 2
LOG_MIN_P: Final = 4
TOP_P: Final = 6
STREAM: Final = 8
REPETITION: Final = 10
FREQUENCY: Final = 11
PRESENCE: Final = 12

COUNTED: Final = 1
"""Flag: the row's token is added to its slot's counts."""
PENALIZED: Final = 2
"""Flag: the penalties apply, by the slot's counts."""
STOPS_BANNED: Final = 4
"""Flag: the slot's stop tokens may not be drawn."""
BIASED: Final = 8
"""Flag: the slot's biases are added to the logits."""
MASKED: Final = 16
"""Flag: only tokens whose bit is set in the row's mask may be drawn."""

PAST_HEADER: Final = 8
"""Words before a slot's past: slot, then how many ids follow of the prompt, of the output, of stop
tokens, and of biased tokens, whose values (float32) come last; three unused."""

PAST_STEP: Final = 4
"""Words that every slot's past is a multiple of, so that each begins aligned."""

IN_PROMPT: Final = 1 << 30
"""Bit of a token's count: the prompt holds it."""
IS_STOP: Final = 1 << 29
"""Bit of a token's count: it is a stop token."""
TIMES: Final = (1 << 24) - 1
"""Bits of a token's count: how often it was drawn."""

TOP_LOGPROBS: Final = 20
"""The most likely tokens of which a device gives log-probabilities."""


def mask_words(vocab_size: int) -> int:
    """Words of a row's mask: token i is bit i % 32 of word i // 32."""
    return -(-vocab_size // 32)


class DrawKind(StrEnum):
    """What a step's requests ask of its draws: their own rules, log-probabilities.

    `GREEDY`s take the largest logit as it is.
    """

    GREEDY = "greedy"
    GREEDY_LOGPROBS = "greedy_logprobs"
    FULL = "full"
    FULL_LOGPROBS = "full_logprobs"

    @property
    def full(self) -> bool:
        """Whether each row has its own rules."""
        return self in (DrawKind.FULL, DrawKind.FULL_LOGPROBS)

    @property
    def logprobs(self) -> bool:
        """Whether log-probabilities are asked for."""
        return self in (DrawKind.GREEDY_LOGPROBS, DrawKind.FULL_LOGPROBS)

    @classmethod
    def of(cls, *, full: bool, logprobs: bool) -> DrawKind:
        """The kind that does these."""
        if full:
            return cls.FULL_LOGPROBS if logprobs else cls.FULL
        return cls.GREEDY_LOGPROBS if logprobs else cls.GREEDY
