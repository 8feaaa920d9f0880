"""A device that computes nothing but remembers everything: the double for tests of the scheduler.

Each cell of a page remembers which prefix of which request wrote it; every read is checked, and so
is every page or slot that is handed out while a step in flight, or a transfer, still names it.
The next token is a function of the prefix, so that each request has one right answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsschedulers._core import Handle, Plan
from tsschedulers.reference_books import Sizes

VOCABULARY = 50
END_TOKEN = 7
_UNWRITTEN = -1


def _mix(key: int, token: int) -> int:
    return (key * 6364136223846793005 + token * 1442695040888963407 + 1) % (1 << 61)


def next_token(tokens: Sequence[int], salt: int) -> int:
    """The right next token."""
    key = salt
    for token in tokens:
        key = _mix(key, token)
    return (key >> 20) % VOCABULARY


def answer(prompt: Sequence[int], salt: int, max_new_tokens: int) -> list[int]:
    """The right output: up to and with the first end token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_new_tokens:
        tokens.append(next_token(tokens, salt))
        if tokens[-1] == END_TOKEN:
            break
    return tokens[len(prompt) :]


@dataclass(slots=True)
class Truth:
    """What a request really says: known tokens, and the key of each prefix."""

    salt: int
    tokens: list[int] = field(default_factory=list[int])
    keys: list[int] = field(default_factory=list[int])

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            self.tokens.append(token)
            self.keys.append(_mix(self.keys[-1] if self.keys else self.salt, token))

    def next(self) -> int:
        """The token that follows."""
        return (self.keys[-1] >> 20) % VOCABULARY


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a step sampled for one slot, and whether it ends the request."""

    handle: Handle
    slot: int
    tokens: tuple[int, ...]
    finished: bool


@dataclass(slots=True)
class _Names:
    """What a step in flight names: (group, page), each with whose it is, and slots."""

    pages: dict[tuple[int, int], set[Handle]] = field(
        default_factory=dict[tuple[int, int], set[Handle]]
    )
    slots: set[int] = field(default_factory=set[int])

    def add(self, group: int, page: int, handle: Handle) -> None:
        self.pages.setdefault((group, page), set()).add(handle)


@dataclass(frozen=True, slots=True)
class _Copy:
    group: int
    source: int
    target: int
    store: bool


class FakeDevice:
    """Runs plans in order. `run` checks and computes; `commit` says that the host knows."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        size = sizes.page_size
        self.cells = [np.full((pages, size), _UNWRITTEN, np.int64) for pages, _ in sizes.groups]
        host = sizes.host_pages + 1
        self.host = [np.full((host, size), _UNWRITTEN, np.int64) for _ in sizes.groups]
        columns = sizes.pages(sizes.max_model_len) + 1
        self.tables = [np.zeros((sizes.max_batch, columns), np.int32) for _ in sizes.groups]
        self.truth: dict[Handle, Truth] = {}
        self.parents: dict[Handle, Handle] = {}
        self.slots: dict[int, Handle] = {}
        self.in_flight: dict[int, _Names] = {}
        self.transfers: dict[int, list[_Copy]] = {}

    def submit(self, handle: Handle, tokens: Sequence[int], salt: int) -> None:
        """Learn what a request says."""
        self.truth[handle] = Truth(salt)
        self.truth[handle].extend(tokens)

    def fork(self, handle: Handle, parent: Handle) -> None:
        """Learn whose pages a request begins with."""
        self.parents[handle] = parent

    def run(self, plan: Plan, accept: Sequence[int] = ()) -> list[Sampled]:
        """Run one plan; `accept[i]` of the i-th sequence's draft rows are right (default: all)."""
        for admission in plan.admitted:
            self._take_slot(admission.slot, admission.handle)
        for group, part in enumerate(plan.groups):
            self._begin_transfers(group, part.stores, store=True)
            self._begin_transfers(group, part.loads, store=False)
            for slot, index, page in part.table_deltas:
                self.tables[group][slot, index] = page
            self.cells[group][part.zero_pages] = 0
            for source, target in part.copies:
                self._check_unnamed(group, int(target))
                self.cells[group][target] = self.cells[group][source]
        if plan.empty:
            return []
        names = _Names()
        sampled = [
            self._run_sequence(plan, i, names, accept[i] if i < len(accept) else None)
            for i in range(plan.num_sequences)
        ]
        for group, part in enumerate(plan.groups):
            for source, target in part.copies.tolist():
                (child,) = {slot for slot, _, page in part.table_deltas.tolist() if page == target}
                names.add(group, target, self.slots[child])
                names.add(group, source, self.parents[self.slots[child]])
        self.in_flight[plan.step] = names
        return [item for item in sampled if item is not None]

    def commit(self, step: int) -> None:
        """The host has been told the results of this step."""
        del self.in_flight[step]

    def transfer(self, ticket: int, ok: bool) -> None:
        """A transfer ends: only now are its bytes moved."""
        for copy in self.transfers.pop(ticket):
            device, host = self.cells[copy.group], self.host[copy.group]
            if not ok:
                continue
            if copy.store:
                host[copy.target] = device[copy.source]
            else:
                device[copy.target] = host[copy.source]

    def _take_slot(self, slot: int, handle: Handle) -> None:
        for names in self.in_flight.values():
            assert slot not in names.slots, f"slot {slot} is given while a step in flight names it"
        self.slots[slot] = handle
        for table in self.tables:
            table[slot] = 0  # so that an entry which is never announced reads the null page

    def _check_unnamed(self, group: int, page: int) -> None:
        for step, names in self.in_flight.items():
            assert (group, page) not in names.pages, (
                f"page {page} is written while step {step} in flight names it"
            )
        for copies in self.transfers.values():
            for copy in copies:
                busy = copy.source if copy.store else copy.target
                assert (group, page) != (copy.group, busy), f"page {page} is in a transfer"

    def _begin_transfers(self, group: int, rows: NDArray[np.int32], *, store: bool) -> None:
        for ticket, source, target in rows.tolist():
            if store:
                self.host[group][target] = _UNWRITTEN
            else:
                self._check_unnamed(group, target)
                self.cells[group][target] = _UNWRITTEN
            self.transfers.setdefault(ticket, []).append(_Copy(group, source, target, store))

    def _run_sequence(
        self, plan: Plan, index: int, names: _Names, accept: int | None
    ) -> Sampled | None:
        slot = int(plan.slots[index])
        handle = self.slots[slot]
        truth = self.truth[handle]
        rows = slice(int(plan.query_starts[index]), int(plan.query_starts[index + 1]))
        end = int(plan.seq_lens[index])
        begin = end - (rows.stop - rows.start)
        assert plan.positions[rows].tolist() == list(range(begin, end))
        decode = index < plan.num_decodes
        drafts = rows.stop - rows.start - 1 if decode else 0
        known = end - drafts
        self._check_tokens(plan.token_ids[rows], truth, begin)
        new = [truth.next()] if plan.samples[index] else []
        truth.extend(new)
        for _ in range(drafts if accept is None else min(drafts, accept)):
            new.append(truth.next())
            truth.extend(new[-1:])
        self._write(plan, slot, rows, truth, begin, names)
        for group in range(len(self.tables)):
            self._read(group, slot, truth, begin, known, names)
        names.slots.add(slot)
        if not plan.samples[index]:
            return None
        return self._sampled(handle, slot, new)

    def _sampled(self, handle: Handle, slot: int, new: list[int]) -> Sampled:
        """Cut after the end token; what came behind it was never said."""
        truth = self.truth[handle]
        if END_TOKEN in new:
            keep = new.index(END_TOKEN) + 1
            cut = len(truth.tokens) - (len(new) - keep)
            del truth.tokens[cut:], truth.keys[cut:], new[keep:]
        return Sampled(handle, slot, tuple(new), new[-1] == END_TOKEN)

    def _check_tokens(self, given: NDArray[np.int32], truth: Truth, begin: int) -> None:
        for offset, token in enumerate(given.tolist()):
            position = begin + offset
            if token >= 0:
                assert token == truth.tokens[position], f"wrong token at position {position}"
            else:
                assert position >= len(truth.tokens) - 2, "an old token is called unknown"

    def _write(
        self, plan: Plan, slot: int, rows: slice, truth: Truth, begin: int, names: _Names
    ) -> None:
        size = self.sizes.page_size
        for group, part in enumerate(plan.groups):
            for offset, target in enumerate(part.slot_mapping[rows].tolist()):
                position = begin + offset
                page, cell = divmod(target, size)
                assert page == self.tables[group][slot, position // size], (
                    "table and mapping differ"
                )
                assert cell == position % size
                assert page != 0, "a write to the null page"
                self._check_owner(group, page, slot)
                right = position < len(truth.keys)
                self.cells[group][page, cell] = truth.keys[position] if right else _UNWRITTEN
                names.add(group, page, self.slots[slot])

    def _check_owner(self, group: int, page: int, slot: int) -> None:
        """A written page is in no other request's hands, in flight or in a transfer."""
        for step, names in self.in_flight.items():
            others = names.pages.get((group, page), set()) - {self.slots[slot]}
            assert not others, f"page {page} is written while step {step} in flight names it"
        for copies in self.transfers.values():
            for copy in copies:
                busy = copy.source if copy.store else copy.target
                assert (group, page) != (copy.group, busy), f"page {page} is in a transfer"

    def _read(
        self, group: int, slot: int, truth: Truth, begin: int, end: int, names: _Names
    ) -> None:
        size = self.sizes.page_size
        window = self.sizes.groups[group][1]
        first = 0 if window is None else max(0, begin + 1 - window)
        positions = np.arange(first, end)
        pages = self.tables[group][slot, positions // size]
        found = self.cells[group][pages, positions % size]
        wrong = np.flatnonzero(found != np.array(truth.keys[first:end]))
        assert wrong.size == 0, (
            f"group {group}, position {positions[wrong[0]]}: page {pages[wrong[0]]} was overwritten"
        )
        for page in set(pages.tolist()):
            names.add(group, page, self.slots[slot])
