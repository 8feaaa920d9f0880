"""What a step leaves behind, and who runs steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch import Tensor

from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import ForwardBatch, Ints


@dataclass(frozen=True, slots=True)
class StepOutput:
    """A step's logits [rows, vocab_size], where they were computed, valid until the next step.

    `greedy` [rows] holds the lowest id of each row's largest logit, or -1 where that is no finite
    number; None where nobody looked for it.
    """

    logits: Tensor
    greedy: Ints | None = None


Wait: TypeAlias = Callable[[], StepOutput]
"""Ends when a step has run; what it left is valid until the next one runs."""


class Runner(Protocol):
    """One rank's executor, as whoever plans the steps sees it."""

    @property
    def plan(self) -> Plan:
        """What it runs."""
        ...

    @property
    def keeps_tokens(self) -> bool:
        """Whether a row whose token id is below 0 takes the greedy one of its slot's last step.

        Then `launch` returns at once, and may be called while the step before still runs.
        """
        ...

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Run one step, and wait for it."""
        ...

    def launch(self, batch: ForwardBatch) -> Wait:
        """Have one step run after those launched before."""
        ...
