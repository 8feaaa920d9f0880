"""Rank 0's engine: requests in, one step at a time, tokens out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tsruntime.artifact.schema import Plan
from tsruntime.engine.channel import Followers
from tsruntime.engine.messages import Event, Refused, Submit, TokenOutput
from tsruntime.engine.request import Request
from tsruntime.engine.step import forward_batch, prompt_array, scheduler_config
from tsruntime.executor.choice import ProgramChoice
from tsruntime.executor.executor import Executor
from tsruntime.sampling.sampler import Sampler
from tsschedulers import _core as schedulers


class Engine:
    """Owns the scheduler and the sampler; runs the executor and tells the other ranks to follow.

    One thread owns it. Between two steps nothing is in flight.
    """

    def __init__(self, plan: Plan, executor: Executor, followers: Followers) -> None:
        self._vocab_size = plan.vocab_size
        self._choice = ProgramChoice(plan.programs)
        self._choice.check(plan.limits)
        self._executor = executor
        self._followers = followers
        self._sampler = Sampler(plan.vocab_size, plan.limits.max_batch)
        self._scheduler = schedulers.Scheduler(scheduler_config(plan))
        self._by_id: dict[int, Request] = {}
        self._by_handle: dict[schedulers.Handle, Request] = {}
        self._seats: list[Request | None] = [None] * plan.limits.max_batch

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._by_id)

    @property
    def stats(self) -> schedulers.Stats:
        """The scheduler's counters."""
        return self._scheduler.stats()

    def submit(self, command: Submit) -> list[Event]:
        """Queue a request: no event, or that it is refused since it could never run.

        ValueError if a live request has its id.
        """
        if command.id in self._by_id:
            raise ValueError(f"request {command.id} is live already")
        try:
            tokens = prompt_array(command.tokens, self._vocab_size)
            handle = self._scheduler.submit(
                tokens, command.params.max_tokens, priority=command.priority
            )
        except ValueError as error:
            return [Refused(command.id, str(error))]
        request = Request(command.id, command.tokens, command.params, handle)
        self._by_id[request.id] = self._by_handle[handle] = request
        return []

    def abort(self, request_id: int) -> None:
        """Forget a request; ids that are not live are ignored."""
        request = self._by_id.get(request_id)
        if request is not None:
            self._scheduler.abort(request.handle)
            self._forget(request)

    def step(self) -> list[Event]:
        """Plan, run, sample and commit one step; its tokens, in the order of their rows.

        A step that only took requests' slots away runs nothing. RuntimeError if requests are live
        and the scheduler never gets anywhere with them.
        """
        plan = self._scheduler.plan()
        if plan.empty:
            if self._by_id and not plan.retracted:
                raise RuntimeError(f"{self.live} requests live, but nothing to run: {plan.reason}")
            return []
        self._seat(plan)
        batch = forward_batch(plan, self._choice)
        self._followers.step(batch)
        return self._commit(plan, self._executor.forward(batch))

    def _seat(self, plan: schedulers.Plan) -> None:
        """Give the sampler the requests that this step admits, with the output they have had."""
        for admission in plan.admitted:
            request = self._by_handle[admission.handle]
            if not request.output:
                request.cached_tokens = admission.cached_tokens
            self._seats[admission.slot] = request
            self._sampler.restore(admission.slot, request.params, request.prompt, request.output)

    def _commit(self, plan: schedulers.Plan, logits: Tensor) -> list[Event]:
        rows = np.flatnonzero(plan.samples)
        slots = plan.slots[rows]
        seats: list[int] = slots.tolist()
        tokens = self._draw(logits, rows, seats, plan.seq_lens[rows].tolist())
        finished = np.zeros(len(rows), np.bool_)
        events: list[Event] = []
        for row, (slot, token) in enumerate(zip(seats, tokens, strict=True)):
            request = self._seats[slot]
            assert request is not None
            finish = request.take(token)
            events.append(TokenOutput(request.id, token, finish, request.cached_tokens))
            if finish is not None:
                finished[row] = True
                self._forget(request)
        self._scheduler.commit(plan.step, slots, np.array(tokens, np.int32), finished)
        return events

    def _draw(
        self, logits: Tensor, rows: NDArray[np.intp], slots: list[int], positions: list[int]
    ) -> list[int]:
        """A token for each of the step's sequences `rows`; noise is keyed by its position."""
        together = len(rows) == 0 or len(rows) == rows[-1] + 1
        chosen = logits[: len(rows)] if together else logits[rows]
        return self._sampler.sample(chosen.float(), slots, positions).tolist()

    def _forget(self, request: Request) -> None:
        del self._by_id[request.id], self._by_handle[request.handle]
