"""Drives the C++ and the reference side by side over the fake device; compares all decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsschedulers._core import Handle, Plan, Scheduler
from tsschedulers.fake_device import FakeDevice, Sampled, answer
from tsschedulers.reference import Reference
from tsschedulers.reference_books import Row, Sizes, Step


@dataclass(frozen=True, slots=True)
class Asked:
    """A submission, and what it must yield."""

    tokens: tuple[int, ...]
    max_new_tokens: int
    salt: int

    @property
    def answer(self) -> list[int]:
        """The right output."""
        return answer(self.tokens, self.salt, self.max_new_tokens)


class SideBySide:
    """Requests are numbered by submission. Assertions say what differs or what is wrong."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.scheduler = Scheduler(sizes.config())
        self.reference = Reference(sizes)
        self.device = FakeDevice(sizes)
        self.handles: list[Handle] = []
        self.asked: list[Asked] = []
        self.outputs: list[list[int]] = []
        self.live: dict[Handle, int] = {}
        self.flight: deque[tuple[int, list[Sampled]]] = deque()
        self.tickets: list[int] = []

    def submit(
        self, tokens: Sequence[int], max_new_tokens: int, *, priority: int = 0, salt: int = 0
    ) -> int:
        """Submit to both."""
        handle = self.scheduler.submit(tokens, max_new_tokens, priority=priority, salt=salt)
        number = self.reference.submit(tokens, max_new_tokens, priority=priority, salt=salt)
        self._asked(handle, Asked(tuple(tokens), max_new_tokens, salt))
        return number

    def fork(self, number: int, max_new_tokens: int) -> int:
        """Fork a live request in both."""
        tokens = (*self.asked[number].tokens, *self.outputs[number])
        handle = self.scheduler.fork(self.handles[number], max_new_tokens)
        child = self.reference.fork(number, max_new_tokens)
        self._asked(handle, Asked(tokens, max_new_tokens, self.asked[number].salt))
        self.device.fork(handle, self.handles[number])
        return child

    def _asked(self, handle: Handle, asked: Asked) -> None:
        self.live[handle] = len(self.handles)
        self.handles.append(handle)
        self.asked.append(asked)
        self.outputs.append([])
        self.device.submit(handle, asked.tokens, asked.salt)

    def abort(self, number: int) -> None:
        """Abort in both."""
        done = self.scheduler.abort(self.handles[number])
        assert done == self.reference.abort(number)
        self.live.pop(self.handles[number], None)

    def plan(self, accept: Sequence[int] = ()) -> Plan:
        """Plan in both, compare, and run the plan on the device."""
        plan = self.scheduler.plan()
        self._compare(plan, self.reference.plan())
        assert plan.num_tokens <= self.sizes.token_budget
        sampled = self.device.run(plan, accept)
        if not plan.empty:
            self.flight.append((plan.step, sampled))
        self.check()
        return plan

    def _compare(self, plan: Plan, step: Step) -> None:
        number = {handle: i for i, handle in enumerate(self.handles)}
        slots = dict(self.device.slots)
        slots.update((admission.slot, admission.handle) for admission in plan.admitted)
        assert (plan.step, plan.reason) == (step.step, step.reason)
        assert [(number[a.handle], a.cached_tokens) for a in plan.admitted] == step.admitted
        assert [number[handle] for handle in plan.retracted] == step.retracted
        decodes = [row for row in step.rows if row.decode]
        assert plan.num_decodes == len(decodes)
        rows = decodes + [row for row in step.rows if not row.decode]
        assert self._rows(plan, slots, number) == rows
        for moved, expected in (
            (_pages(plan, "stores"), step.stores),
            (_pages(plan, "loads"), step.loads),
        ):
            assert moved == expected
            self.tickets += moved

    def _rows(self, plan: Plan, slots: dict[int, Handle], number: dict[Handle, int]) -> list[Row]:
        lengths = np.diff(plan.query_starts).tolist()
        ends = plan.seq_lens.tolist()
        rows: list[Row] = []
        for i, slot in enumerate(plan.slots.tolist()):
            decode = i < plan.num_decodes
            most = int(plan.samples[i]) * (lengths[i] if decode else 1)
            rows.append(Row(number[slots[slot]], ends[i] - lengths[i], ends[i], most, decode))
        return rows

    def commit(self, *, late: bool = False) -> None:
        """Commit the oldest step in both; `late` reports tokens of requests that are gone too."""
        step, sampled = self.flight.popleft()
        told = [item for item in sampled if late or item.handle in self.live]
        slots = [item.slot for item in told for _ in item.tokens]
        tokens = [token for item in told for token in item.tokens]
        ends = [
            item.finished and i == len(item.tokens) - 1
            for item in told
            for i in range(len(item.tokens))
        ]
        self.scheduler.commit(
            step, np.array(slots, np.int32), np.array(tokens, np.int32), np.array(ends, np.bool_)
        )
        alive = [(self.live[item.handle], item) for item in told if item.handle in self.live]
        self.reference.commit(
            step,
            {number: list(item.tokens) for number, item in alive},
            {number for number, item in alive if item.finished},
        )
        self.device.commit(step)
        for number, item in alive:
            self._told(number, item)
        self.check()

    def _told(self, number: int, item: Sampled) -> None:
        asked, output = self.asked[number], self.outputs[number]
        output += item.tokens
        if item.finished or len(output) == asked.max_new_tokens:
            assert output == asked.answer, f"request {number} got another answer than alone"
            del self.live[item.handle]

    def transfer(self, ticket: int, *, ok: bool = True) -> None:
        """A transfer is done, or has failed."""
        self.tickets.remove(ticket)
        self.device.transfer(ticket, ok)
        self.scheduler.transfer_done(ticket, ok)
        self.reference.transfer_done(ticket, ok)
        self.check()

    def check(self) -> None:
        """Invariants, and the same books."""
        self.scheduler.check_invariants()
        stats = self.scheduler.stats()
        pools = self.reference.cache.pools
        assert list(stats.free_pages) == [pool.free for pool in pools]
        assert list(stats.cached_pages) == [len(pool.lru) for pool in pools]
        host = self.reference.cache.host if self.sizes.host_pages else []
        assert list(stats.host_free_pages) == [pool.free for pool in host]
        assert list(stats.host_cached_pages) == [len(pool.lru) for pool in host]
        assert stats.retractions == self.reference.retractions
        assert stats.waiting == len(self.reference.waiting)
        assert stats.waiting + stats.running == len(self.live) == len(self.reference.requests)

    def bound(self) -> int:
        """Steps within which all is done: in each the first in the order computes a token, or a

        transfer ends; whoever goes before it can make it begin again, once.
        """
        lengths = [len(self.asked[n].tokens) + self.asked[n].max_new_tokens + 8
                   for n in self.live.values()]  # fmt: skip
        return 8 + (1 + len(lengths)) * sum(lengths)

    def drain(self, limit: int) -> int:
        """Run to the end, transfers done at once; the number of steps, at most `limit`."""
        for count in range(limit):
            for ticket in list(self.tickets):
                self.transfer(ticket)
            plan = self.plan()
            if self.flight:
                self.commit()
            elif plan.empty and not self.tickets:
                assert plan.reason == "idle"
                assert not self.live
                return count
        raise AssertionError(f"not done within {limit} steps: {sorted(self.live.values())}")


def _pages(plan: Plan, kind: str) -> dict[int, int]:
    """Pages of each ticket, all groups together."""
    pages: dict[int, int] = {}
    for part in plan.groups:
        for ticket, _, _ in (part.stores if kind == "stores" else part.loads).tolist():
            pages[ticket] = pages.get(ticket, 0) + 1
    return pages
