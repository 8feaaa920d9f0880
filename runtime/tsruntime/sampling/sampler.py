"""Draws the next token of each row from its logits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tsruntime.sampling.filters import candidates
from tsruntime.sampling.logprobs import logprobs_of
from tsruntime.sampling.noise import draw
from tsruntime.sampling.params import SamplingParams, TokenLogprobs
from tsruntime.sampling.penalties import TokenCounts, apply_penalties, penalizes

if TYPE_CHECKING:
    from torch import Tensor


class NotFiniteError(ArithmeticError):
    """The model gave a row whose largest logit is no finite number, or none may be drawn."""


@dataclass(slots=True)
class _Slot:
    """What the sampler remembers of the request in one slot."""

    params: SamplingParams
    generated: int
    seen: TokenCounts | None


class Sampler:
    """Sampling state of every slot. A row's draw depends on its own request alone.

    Order of operations, as in vLLM: mask, `logit_bias`, stop tokens masked until `min_tokens`,
    penalties, temperature, min-p, top-k, top-p, draw. Temperature 0 takes the largest logit, and of
    equal ones the lowest id.
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
        self,
        logits: Tensor,
        slots: Sequence[int],
        positions: Sequence[int],
        masks: Mapping[int, NDArray[np.bool_]] | None = None,
    ) -> NDArray[np.int32]:
        """Draw one token for each row of float32 `logits` [n, V] on the CPU, and count it.

        Row i belongs to `slots[i]`; `positions[i]` keys its noise, and must rise with each token of
        a request (the position of the row that gave the logits, say). Of rows in `masks` only
        tokens may be drawn that their mask [V] allows. `logits` stays as it is. Raises
        NotFiniteError for a row of NaN or infinite logits, and for one that leaves no token.
        """
        rows: NDArray[np.float32] = logits.numpy()
        if rows.shape != (len(slots), self._vocab_size) or rows.dtype != np.float32:
            raise ValueError(
                f"logits are {rows.dtype} {list(rows.shape)}, expected float32 "
                f"[{len(slots)}, {self._vocab_size}]"
            )
        drawn = np.empty(len(slots), np.int32)
        for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
            mask = masks.get(row) if masks else None
            drawn[row] = self._sample_row(rows[row], slot, position, mask)
        return drawn

    def logprobs(
        self, logits: Tensor, slots: Sequence[int], tokens: Sequence[int]
    ) -> list[TokenLogprobs | None]:
        """Of each row of `logits` [n, V], for its token, as its slot's request asks."""
        asked = [self._state(slot).params.logprobs for slot in slots]
        return [
            None if count is None else logprobs_of(logits[row].numpy(), token, count)
            for row, (count, token) in enumerate(zip(asked, tokens, strict=True))
        ]

    def _state(self, slot: int) -> _Slot:
        state = self._slots[slot]
        if state is None:
            raise ValueError(f"slot {slot} was never admitted")
        return state

    def _sample_row(
        self,
        logits: NDArray[np.float32],
        slot: int,
        position: int,
        mask: NDArray[np.bool_] | None,
    ) -> int:
        state = self._state(slot)
        best = int(logits.argmax())  # of a NaN, where there is one
        if not math.isfinite(logits[best]):
            raise NotFiniteError(
                f"the largest logit of slot {slot} at position {position} is {logits[best]}"
            )
        adjusted = _adjusted(logits, state, mask)
        if adjusted is not logits and adjusted.max() == -math.inf:
            raise NotFiniteError(f"no token may be drawn for slot {slot} at position {position}")
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


def _adjusted(
    logits: NDArray[np.float32], state: _Slot, mask: NDArray[np.bool_] | None
) -> NDArray[np.float32]:
    """`logits` [V] with the mask, the biases, the stop tokens' ban and the penalties."""
    params, stops = state.params, _banned(state)
    if mask is None and state.seen is None and not stops and not params.logit_bias:
        return logits
    logits = logits.copy() if mask is None else np.where(mask, logits, np.float32(-np.inf))
    for token, bias in params.logit_bias:
        logits[token] += np.float32(bias)
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
