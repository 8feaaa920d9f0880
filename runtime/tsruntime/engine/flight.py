"""Steps in flight: what was launched, for whom, and how to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from tsruntime.engine.request import Request
from tsruntime.executor.batch import ForwardBatch
from tsruntime.executor.output import Runner, Wait
from tsschedulers._core import Plan as StepPlan


@dataclass(slots=True)
class Flight:
    """A launched step. `requests` are those whose tokens it samples, from its sequences `rows`.

    `tickets` are the transfers that it began, which end with it.
    """

    plan: StepPlan
    tickets: tuple[int, ...]
    rows: NDArray[np.intp]
    requests: list[Request]
    wait: Wait

    def drop_rows(self, lives: Callable[[Request], bool]) -> None:
        """Keep the rows whose requests live."""
        keep = [i for i, request in enumerate(self.requests) if lives(request)]
        if len(keep) < len(self.requests):
            self.rows = self.rows[keep]
            self.requests = [self.requests[i] for i in keep]


class Launcher:
    """Runs batches in the order of their launch.

    On a device they run from the launch on. On the host, with `overlap` on a thread of its own,
    from the launch on: kernels release the interpreter; without it a batch runs when it is waited
    for, and before the next one is launched.
    """

    def __init__(self, executor: Runner, *, overlap: bool) -> None:
        self._executor = executor
        # gradient mode belongs to a thread
        grad = partial(torch.set_grad_enabled, False)
        threaded = overlap and not executor.draws_tokens
        self._thread = ThreadPoolExecutor(1, "executor", grad) if threaded else None

    def launch(self, batch: ForwardBatch) -> Wait:
        """Have `batch` run; the executor's errors are raised by the wait."""
        if self._thread is None:
            return self._executor.launch(batch)
        return self._thread.submit(self._executor.run, batch).result

    def close(self) -> None:
        """Wait for what runs and end the thread."""
        if self._thread is not None:
            self._thread.shutdown()
