"""Who draws a step's tokens: the host's sampler, or the device by what the host tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import Draws, Ints, greedy_draws
from tsruntime.executor.output import DrawnLogprobs, StepOutput
from tsruntime.sampling.params import LOGIT_BIAS_MOST, SamplingParams, TokenLogprobs
from tsruntime.sampling.sampler import NotFiniteError, Sampler
from tsruntime.sampling.table import DrawTable

_UNUSED: Final = greedy_draws()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token of each row, and its log-probabilities where its request asks for them."""

    tokens: list[int]
    logprobs: list[TokenLogprobs | None]


class HostDrawing:
    """Tokens are drawn here, from the logits of a step that has ended."""

    ahead = False
    """Whether a step may be launched before the tokens of the last one are known here."""

    def __init__(self, plan: Plan) -> None:
        self._sampler = Sampler(plan.vocab_size, plan.limits.max_batch)

    def restore(
        self, slot: int, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
    ) -> None:
        """Give `slot` to a request that has generated `output` already."""
        self._sampler.restore(slot, params, prompt, output)

    def draws(self, slots: Ints, positions: Ints, samples: Ints) -> Draws:
        """What executors are told that draw no tokens."""
        return _UNUSED

    def finish(
        self, output: StepOutput, rows: NDArray[np.intp], slots: Ints, positions: Ints
    ) -> Drawn:
        """Draw for the sequences `rows` of a step, whose slots and lengths are given."""
        together = len(rows) == rows[-1] + 1
        chosen = output.logits[: len(rows)] if together else output.logits[rows]
        logits, places = chosen.float().cpu(), slots.tolist()
        tokens = self._sampler.sample(logits, places, positions.tolist()).tolist()
        return Drawn(tokens, self._sampler.logprobs(logits, places, tokens))


class DeviceDrawing:
    """Tokens are drawn on the device, as each step is told when it is launched."""

    ahead = True

    def __init__(self, plan: Plan) -> None:
        self._table = DrawTable(plan.vocab_size, plan.limits.max_batch)

    def restore(
        self, slot: int, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
    ) -> None:
        """Give `slot` to a request that has generated `output` already."""
        self._table.restore(slot, params, prompt, output)

    def draws(self, slots: Ints, positions: Ints, samples: Ints) -> Draws:
        """How a step draws for its sequences; noise is keyed by their lengths."""
        return self._table.draws(slots, positions, samples.astype(np.bool_))

    def finish(
        self, output: StepOutput, rows: NDArray[np.intp], slots: Ints, positions: Ints
    ) -> Drawn:
        """What was drawn for the sequences `rows` of a step."""
        assert output.tokens is not None, "the executor draws tokens"
        tokens: list[int] = output.tokens[rows].tolist()
        if min(tokens) < 0:
            row = tokens.index(min(tokens))
            raise NotFiniteError(
                f"slot {slots[row]} at position {positions[row]} has no largest finite logit, or"
                " no token that may be drawn"
            )
        asked = [self._table.logprobs(slot) for slot in slots.tolist()]
        found = [
            None if count is None else _logprobs(output.logprobs, row, count)
            for row, count in zip(rows.tolist(), asked, strict=True)
        ]
        return Drawn(tokens, found)


def check_biases(params: SamplingParams, vocab_size: int) -> None:
    """ValueError unless the biases fit what every executor has room for."""
    if len(params.logit_bias) > LOGIT_BIAS_MOST:
        raise ValueError(
            f"logit_bias has {len(params.logit_bias)} tokens, and may have {LOGIT_BIAS_MOST}"
        )
    for token, _ in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"token id {token} of logit_bias is outside of the vocabulary:"
                f" 0 to {vocab_size - 1}"
            )


def _logprobs(found: DrawnLogprobs | None, row: int, count: int) -> TokenLogprobs:
    assert found is not None, "the step was asked for log-probabilities"
    ids, values = found.top_ids[row, :count].tolist(), found.top_values[row, :count].tolist()
    return TokenLogprobs(float(found.chosen[row]), tuple(zip(ids, values, strict=True)))
