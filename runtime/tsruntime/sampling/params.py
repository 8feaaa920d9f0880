"""How one request draws its tokens, as the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Validated sampling parameters; the defaults are the OpenAI API's and vLLM's.

    `temperature` 0 is greedy. `top_k` 0 keeps every token. `min_p` is relative to the most likely
    token. `seed` None means that the front end drew one. Stop strings are the front end's affair
    and do not reach the engine. `max_tokens` is at least 1.
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
