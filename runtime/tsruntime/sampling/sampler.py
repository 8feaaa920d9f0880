"""Draws the next token of each row from its logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tsruntime.sampling.filters import candidates
from tsruntime.sampling.noise import draw
from tsruntime.sampling.params import SamplingParams
from tsruntime.sampling.penalties import TokenCounts, apply_penalties, penalizes

if TYPE_CHECKING:
    from torch import Tensor


class NotFiniteError(ArithmeticError):
    """The model gave a row whose largest logit is no finite number."""


@dataclass(slots=True)
class _Slot:
    """What the sampler remembers of the request in one slot."""

    params: SamplingParams
    generated: int
    seen: TokenCounts | None


class Sampler:
    """Sampling state of every slot. A row's draw depends on its own request alone.

    Order of operations, as in vLLM: stop tokens masked until `min_tokens`, penalties,
    temperature, min-p, top-k, top-p, draw. Temperature 0 takes the largest logit, and of equal
    ones the lowest id.
    """

    def __init__(self, vocab_size: int, max_batch: int) -> None:
        self._vocab_size = vocab_size
        self._slots: list[_Slot | None] = [None] * max_batch

    def admit(self, slot: int, params: SamplingParams, prompt: Sequence[int]) -> None:
        """Give `slot` to a new request, in place of whatever was there."""
        self.restore(slot, params, prompt, ())

    def restore(
        self, slot: int, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
    ) -> None:
        """Give `slot` to a request that has generated `output` already."""
        seen = TokenCounts(prompt, output) if penalizes(params) else None
        self._slots[slot] = _Slot(params, len(output), seen)

    def sample(
        self, logits: Tensor, slots: Sequence[int], positions: Sequence[int]
    ) -> NDArray[np.int32]:
        """Draw one token for each row of float32 `logits` [n, V] on the CPU, and count it.

        Row i belongs to `slots[i]`; `positions[i]` keys its noise, and must rise with each token of
        a request (the position of the row that gave the logits, say). `logits` stays as it is.
        Raises NotFiniteError for a row of NaN or infinite logits.
        """
        rows: NDArray[np.float32] = logits.numpy()
        if rows.shape != (len(slots), self._vocab_size) or rows.dtype != np.float32:
            raise ValueError(
                f"logits are {rows.dtype} {list(rows.shape)}, expected float32 "
                f"[{len(slots)}, {self._vocab_size}]"
            )
        drawn = np.empty(len(slots), np.int32)
        for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
            drawn[row] = self._sample_row(rows[row], slot, position)
        return drawn

    def takes_the_largest(self, slots: Sequence[int]) -> bool:
        """Whether each of `slots` takes the largest logit as it is: greedy, nothing penalized."""
        states = [self._state(slot) for slot in slots]
        return all(s.params.temperature == 0.0 and _is_plain(s) for s in states)

    def take(
        self, tokens: NDArray[np.int32], slots: Sequence[int], positions: Sequence[int]
    ) -> NDArray[np.int32]:
        """Count `tokens` [n], the largest logits' ids, one for each slot that takes those.

        Raises NotFiniteError for a token below 0: the row had no finite largest logit.
        """
        for token, slot, position in zip(tokens.tolist(), slots, positions, strict=True):
            if token < 0:
                raise NotFiniteError(
                    f"the largest logit of slot {slot} at position {position} is not finite"
                )
            self._state(slot).generated += 1
        return tokens

    def _state(self, slot: int) -> _Slot:
        state = self._slots[slot]
        if state is None:
            raise ValueError(f"slot {slot} was never admitted")
        return state

    def _sample_row(self, logits: NDArray[np.float32], slot: int, position: int) -> int:
        state = self._state(slot)
        best = int(logits.argmax())  # of a NaN, where there is one
        if not math.isfinite(logits[best]):
            raise NotFiniteError(
                f"the largest logit of slot {slot} at position {position} is {logits[best]}"
            )
        adjusted = _adjusted(logits, state)
        plain = adjusted is logits and state.params.temperature == 0.0
        token = best if plain else _draw(adjusted, state.params, position)
        state.generated += 1
        if state.seen is not None:
            state.seen.add(token)
        return token


def _banned(state: _Slot) -> tuple[int, ...]:
    """The stop tokens that the request may not draw yet."""
    params = state.params
    return params.stop_token_ids if state.generated < params.min_tokens else ()


def _is_plain(state: _Slot) -> bool:
    """Whether the request's next logits are taken as they are."""
    return state.seen is None and not _banned(state)


def _adjusted(logits: NDArray[np.float32], state: _Slot) -> NDArray[np.float32]:
    """`logits` [V] less the penalties and, before `min_tokens`, the stop tokens."""
    if _is_plain(state):
        return logits
    params = state.params
    stops = _banned(state)
    logits = logits.copy()
    if stops:
        logits[list(stops)] = -np.inf
    if state.seen is not None:
        apply_penalties(logits, params, state.seen)
    return logits


def _draw(logits: NDArray[np.float32], params: SamplingParams, position: int) -> int:
    if params.temperature == 0.0:
        return int(logits.argmax())
    left = candidates(logits, params)
    return draw(left.ids, left.scores, params.seed, position)
