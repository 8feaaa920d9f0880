"""Rank 0's engine: requests in, steps planned and run, tokens out."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from tsruntime.artifact.schema import Plan
from tsruntime.engine.channel import Followers
from tsruntime.engine.drawing import DeviceDrawing, Drawn, HostDrawing, check_biases
from tsruntime.engine.flight import Flight, Launcher
from tsruntime.engine.messages import (
    EngineStats,
    Event,
    Fork,
    Refused,
    Submit,
    TokenOutput,
)
from tsruntime.engine.request import Request
from tsruntime.engine.step import (
    forward_batch,
    page_pools,
    prompt_array,
    scheduler_config,
    tickets,
)
from tsruntime.executor.choice import ProgramChoice
from tsruntime.executor.output import Runner
from tsschedulers import _core as schedulers


class Engine:
    """Owns the scheduler and the draws; runs the executor and tells the other ranks to follow.

    One thread owns it. Of the plan's `steps_in_flight`, 1 plans a step when the one before is
    committed; 2 plans it while that one runs, so that a decode's input token is filled in when it
    is known, right before the step is launched; a device fills it in that drew it. Leaving the
    context ends the launcher's thread.
    """

    def __init__(self, plan: Plan, executor: Runner, followers: Followers) -> None:
        self._vocab_size = plan.vocab_size
        self._choice = ProgramChoice(plan.programs)
        self._choice.check(plan.limits)
        self._ahead = plan.limits.steps_in_flight > 1
        self._launcher = Launcher(executor, overlap=self._ahead)
        self._followers = followers
        self._drawing: HostDrawing | DeviceDrawing = (
            DeviceDrawing(plan) if executor.draws_tokens else HostDrawing(plan)
        )
        self._chains = self._ahead and self._drawing.ahead
        self._scheduler = schedulers.Scheduler(scheduler_config(plan))
        self._by_id: dict[int, Request] = {}
        self._by_handle: dict[schedulers.Handle, Request] = {}
        self._parents: dict[int, Request] = {}  # of forks that wait, by the fork's id
        self._seats: list[Request | None] = [None] * plan.limits.max_batch
        self._sampled = np.zeros(plan.limits.max_batch, np.int32)
        self._flight: Flight | None = None
        self._kv_cache = plan.kv_cache
        self._prefix_queries = self._prefix_hits = 0
        self._pages_stored = self._pages_loaded = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._launcher.close()

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._by_id) + len(self._parents)

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do: a request lives, or a step is in flight."""
        return bool(self._by_id) or self._flight is not None

    @property
    def stats(self) -> schedulers.Stats:
        """The scheduler's counters."""
        return self._scheduler.stats()

    def report(self) -> EngineStats:
        """The counters, for whoever watches."""
        stats, kv = self._scheduler.stats(), self._kv_cache
        return EngineStats(
            stats.running,
            stats.waiting + len(self._parents),
            stats.retractions,
            self._prefix_queries,
            self._prefix_hits,
            self._pages_stored,
            self._pages_loaded,
            page_pools(kv, kv.pages - 1, stats.free_pages, stats.cached_pages),
            page_pools(kv, kv.host_pages, stats.host_free_pages, stats.host_cached_pages),
        )

    def submit(self, command: Submit) -> list[Event]:
        """Queue a request: no event, or that it is refused since it could never run.

        ValueError if a live request has its id.
        """
        self._check_new(command.id)
        try:
            check_biases(command.params, self._vocab_size)
            tokens = prompt_array(command.tokens, self._vocab_size)
            handle = self._scheduler.submit(
                tokens, command.params.max_tokens, priority=command.priority
            )
        except ValueError as error:
            return [Refused(command.id, str(error))]
        self._add(Request(command.id, command.tokens, command.params, command.priority, handle))
        return []

    def fork(self, command: Fork) -> list[Event]:
        """Have a request go on from another's prompt, once that is computed; as `submit`."""
        self._check_new(command.id)
        parent = self._by_id.get(command.parent)
        if parent is None:
            return [Refused(command.id, f"request {command.parent} is not live")]
        try:
            check_biases(command.params, self._vocab_size)
        except ValueError as error:
            return [Refused(command.id, str(error))]
        if parent.output:  # too late to share its place, but the cache has its whole pages
            return self.submit(Submit(command.id, parent.prompt, command.params, parent.priority))
        parent.forks.append(command)
        self._parents[command.id] = parent
        return []

    def abort(self, request_id: int) -> list[Event]:
        """Forget a request; ids that are not live are ignored."""
        if (parent := self._parents.pop(request_id, None)) is not None:
            parent.forks = [fork for fork in parent.forks if fork.id != request_id]
        request = self._by_id.get(request_id)
        if request is None:
            return []
        self._scheduler.abort(request.handle)
        self._forget(request)
        return self._adopt(request)

    def step(self) -> list[Event]:
        """Finish the step in flight, after planning the next one where that is done ahead.

        Its tokens come in the order of their rows; none from a call that only launches a step, or
        after one that only moved pages. RuntimeError if requests are live and the scheduler never
        gets anywhere with them.
        """
        planned = self._plan() if self._ahead or self._flight is None else None
        if self._flight is None:
            self._flight = self._launch(planned)
            if self._ahead or self._flight is None:
                return []
            planned = None
        done = self._flight
        chained = self._launch(planned, known=False) if self._chains else None
        drawn = self._finish(done)
        self._flight = chained or self._launch(planned)
        return self._commit(done, drawn)

    def _plan(self) -> schedulers.Plan | None:
        """The next step, its requests seated; None if there is nothing to do yet."""
        plan = self._scheduler.plan()
        self._seat(plan)
        if not plan.empty or tickets(plan):
            return plan
        if self._by_id and not plan.retracted and self._flight is None:
            raise RuntimeError(f"{self.live} requests live, but nothing to run: {plan.reason}")
        return None

    def _seat(self, plan: schedulers.Plan) -> None:
        """Seat the requests that this step admits, with the output they have had."""
        for admission in plan.admitted:
            request = self._by_handle[admission.handle]
            if not request.admitted:
                request.admitted = True
                request.cached_tokens = admission.cached_tokens
                self._prefix_queries += len(request.prompt)
                self._prefix_hits += admission.cached_tokens
            self._seats[admission.slot] = request
            self._drawing.restore(admission.slot, request.params, request.prompt, request.output)

    def _launch(self, plan: schedulers.Plan | None, *, known: bool = True) -> Flight | None:
        """Start a step on this rank and the others.

        Tokens that its plan did not know are `known` by now, or the ranks take them themselves.
        """
        if plan is None:
            return None
        draws = self._drawing.draws(plan.slots, plan.seq_lens, plan.samples)
        batch = forward_batch(plan, self._choice, self._sampled if known else None, draws)
        self._followers.step(batch)
        self._pages_stored += sum(len(group.stores) for group in batch.groups)
        self._pages_loaded += sum(len(group.loads) for group in batch.groups)
        rows = np.flatnonzero(plan.samples)
        slots: list[int] = plan.slots[rows].tolist()
        requests = [request for slot in slots if (request := self._seats[slot]) is not None]
        assert len(requests) == len(slots), "a step names a slot without a request"
        return Flight(plan, tickets(plan), rows, requests, self._launcher.launch(batch))

    def _finish(self, flight: Flight) -> Drawn:
        """Wait for a step; a token for each of its rows whose request still lives."""
        output = flight.wait()
        for ticket in flight.tickets:
            self._scheduler.transfer_done(ticket, True)
        flight.drop_rows(lambda request: self._by_id.get(request.id) is request)
        if not flight.requests:
            return Drawn([], [])
        slots = flight.plan.slots[flight.rows]
        drawn = self._drawing.finish(output, flight.rows, slots, flight.plan.seq_lens[flight.rows])
        self._sampled[slots] = drawn.tokens
        return drawn

    def _commit(self, flight: Flight, drawn: Drawn) -> list[Event]:
        events: list[Event] = []
        tokens = drawn.tokens
        finished = np.zeros(len(tokens), np.bool_)
        rows = zip(flight.requests, tokens, drawn.logprobs, strict=True)
        for row, (request, token, logprobs) in enumerate(rows):
            if request.forks:
                events += self._fork_all(request)
            finish = request.take(token)
            events.append(TokenOutput(request.id, token, finish, request.cached_tokens, logprobs))
            if finish is not None:
                finished[row] = True
                self._forget(request)
        plan = flight.plan
        if not plan.empty:
            found = np.array(tokens, np.int32)
            self._scheduler.commit(plan.step, plan.slots[flight.rows], found, finished)
        return events

    def _fork_all(self, parent: Request) -> list[Event]:
        """Queue the forks of a request whose prompt has been computed.

        The scheduler must not know its first token yet: a fork has all tokens that it knows.
        """
        refused: list[Event] = []
        for fork in parent.forks:
            del self._parents[fork.id]
            try:
                handle = self._scheduler.fork(parent.handle, fork.params.max_tokens)
            except ValueError as error:
                refused.append(Refused(fork.id, str(error)))
            else:
                self._add(Request(fork.id, parent.prompt, fork.params, parent.priority, handle))
        parent.forks.clear()
        return refused

    def _adopt(self, gone: Request) -> list[Event]:
        """The first fork that waits for an aborted request takes its place."""
        for fork in gone.forks:
            del self._parents[fork.id]
        events: list[Event] = []
        for fork in gone.forks:
            first = gone.forks[0]
            if fork is first:
                events += self.submit(Submit(fork.id, gone.prompt, fork.params, gone.priority))
            else:
                events += self.fork(Fork(fork.id, first.id, fork.params))
        return events

    def _check_new(self, request_id: int) -> None:
        if request_id in self._by_id or request_id in self._parents:
            raise ValueError(f"request {request_id} is live already")

    def _add(self, request: Request) -> None:
        self._by_id[request.id] = self._by_handle[request.handle] = request

    def _forget(self, request: Request) -> None:
        del self._by_id[request.id], self._by_handle[request.handle]
