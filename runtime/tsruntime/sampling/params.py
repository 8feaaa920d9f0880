"""How one request draws its tokens, as the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

LOGIT_BIAS_MOST: Final = 1024
"""Tokens of one request that may have a bias, as in vLLM."""

TOP_LOGPROBS_MOST: Final = 20
"""Tokens whose log-probabilities a request may ask for at each place, as in the OpenAI API."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Validated sampling parameters; the defaults are the OpenAI API's and vLLM's.

    `temperature` 0 is greedy. `top_k` 0 keeps every token. `min_p` is relative to the most likely
    token. `seed` None means that the front end drew one. Stop strings are the front end's affair
    and do not reach the engine. `max_tokens` is at least 1. `logit_bias` holds (token, bias), at
    most `LOGIT_BIAS_MOST` of distinct tokens. `logprobs` asks for the log-probability of every
    token and of that many likeliest ones beside it, at most `TOP_LOGPROBS_MOST`.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None


class TokenLogprobs(NamedTuple):
    """Natural log-probabilities of the raw model at one place: of its token, and the likeliest.

    `top` holds (token, log-probability), falling; of equal ones the lowest id comes first.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]
