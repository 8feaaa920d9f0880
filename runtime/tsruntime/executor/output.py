"""What a step leaves behind, and who runs steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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


class Runner(Protocol):
    """One rank's executor, as whoever plans the steps sees it."""

    @property
    def plan(self) -> Plan:
        """What it runs."""
        ...

    def run(self, batch: ForwardBatch) -> StepOutput:
        """Run one step, and wait for it."""
        ...
