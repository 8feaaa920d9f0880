"""What a step leaves behind, and who runs steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import ForwardBatch, Ints


@dataclass(frozen=True, slots=True)
class DrawnLogprobs:
    """Log-probabilities of the raw model: of the rows' tokens [rows], and of the likeliest.

    `top_ids` and `top_values` [rows, most] fall; of equal ones the lowest id comes first.
    """

    chosen: NDArray[np.float32]
    top_ids: Ints
    top_values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """A step's logits [rows, vocab_size], where they were computed, valid until the next step.

    `tokens` [rows] were drawn there as the batch says, -1 where no logit was finite or none could
    be drawn; None where nobody drew. So `logprobs`, where the batch asks for them.
    """

    logits: Tensor
    tokens: Ints | None = None
    logprobs: DrawnLogprobs | None = None


Wait: TypeAlias = Callable[[], StepOutput]
"""Ends when a step has run; what it left is valid until the next one runs."""


class Runner(Protocol):
    """One rank's executor, as whoever plans the steps sees it."""

    @property
    def plan(self) -> Plan:
        """What it runs."""
        ...

    @property
    def draws_tokens(self) -> bool:
        """Whether it draws tokens itself, as a batch's `draws` say, and keeps each slot's last.

        A row whose token id is below 0 takes that. Then `launch` returns at once, and may be called
        while the step before still runs.
        """
        ...

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Run one step, and wait for it."""
        ...

    def launch(self, batch: ForwardBatch) -> Wait:
        """Have one step run after those launched before."""
        ...
