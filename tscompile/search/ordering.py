"""The order in which the search takes the operations of a segment: one that meets few states.

What a run costs does not depend on the order, how many states there are in between does. Where two
chains of operations share nothing, as those of queries and keys do, every state of the one stands
beside every state of the other; so one is ended, where few placements matter, before the next
begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

_FOLLOWED = 32
"""How many beginnings of an order are followed; those of layers are fewer at any length."""


@dataclass(frozen=True, slots=True)
class Wired:
    """One operation: the values that it reads and gives, by number.

    It needs the values that it reads in so many `placements`, has so many `options`, and is
    `joined` where a kernel does it together with the one before it.
    """

    reads: tuple[int, ...]
    gives: tuple[int, ...]
    placements: tuple[int, ...]
    options: int = 1
    joined: bool = False


class Order:
    """Operations in the order in which they are taken, by their `positions`.

    Of each value there are so many `placements`, and so many `uses` behind the operations.
    """

    def __init__(
        self, wired: tuple[Wired, ...], placements: tuple[int, ...], uses: tuple[int, ...]
    ) -> None:
        self.positions = _ordered(wired, placements, uses)
        self._wiring = _Wiring(wired, placements, uses)

    def live(self, start: int) -> list[int]:
        """The values that are needed once `start` operations are done."""
        done = self.positions[:start]
        return [value for value in self._wiring.given(done) if self._wiring.uses(value, done)]

    def once(self, start: int) -> list[int]:
        """Those of them with a single use left."""
        done = self.positions[:start]
        return [value for value in self.live(start) if self._wiring.uses(value, done) == 1]


@dataclass(frozen=True, slots=True)
class _Begun:
    """What was done, in this order, and how many states it meets."""

    order: tuple[int, ...]
    met: int


@lru_cache(maxsize=256)
def _ordered(
    wired: tuple[Wired, ...], placements: tuple[int, ...], uses: tuple[int, ...]
) -> tuple[int, ...]:
    """The order that meets the fewest states, the first of several; what is joined stays so.

    Of the beginnings with as many tasks only the best are followed.
    """
    wiring = _Wiring(wired, placements, uses)
    tasks = list(_tasks(wired))
    begun = [_Begun((), 0)]
    for _ in tasks:
        found: dict[frozenset[int], _Begun] = {}
        for one in begun:
            for longer in _continued(wiring, tasks, one):
                known = found.setdefault(frozenset(longer.order), longer)
                if longer.met < known.met:
                    found[frozenset(longer.order)] = longer
        begun = sorted(found.values(), key=lambda one: one.met)[:_FOLLOWED]
    return begun[0].order


def _tasks(wired: Sequence[Wired]) -> Iterator[tuple[int, ...]]:
    """Positions that stay together."""
    starts = [position for position, one in enumerate(wired) if not (position and one.joined)]
    for start, end in zip(starts, [*starts[1:], len(wired)], strict=True):
        yield tuple(range(start, end))


def _continued(
    wiring: _Wiring, tasks: Sequence[tuple[int, ...]], begun: _Begun
) -> Iterator[_Begun]:
    """What can be done next: each state is met with each option."""
    states = wiring.states(begun.order)
    for task in tasks:
        if task[0] not in begun.order and wiring.allows(task, begun.order):
            yield _Begun((*begun.order, *task), begun.met + states * wiring.options(task))


class _Wiring:
    """Who gives and who reads each value."""

    def __init__(
        self, wired: Sequence[Wired], placements: Sequence[int], uses: Sequence[int]
    ) -> None:
        self._wired, self._placements, self._behind = wired, placements, uses
        self._giver = {value: p for p, one in enumerate(wired) for value in one.gives}
        self._readers: list[dict[int, int]] = [{} for _ in placements]
        for position, one in enumerate(wired):
            for value, count in zip(one.reads, one.placements, strict=True):
                self._readers[value][position] = count

    def options(self, task: Collection[int]) -> int:
        """Of all its operations."""
        return sum(self._wired[position].options for position in task)

    def given(self, done: Collection[int]) -> list[int]:
        """The values that there are where so much is done."""
        values = range(len(self._placements))
        return [v for v in values if v not in self._giver or self._giver[v] in done]

    def uses(self, value: int, done: Collection[int]) -> int:
        """How many are left."""
        return self._behind[value] + len(self._readers[value].keys() - done)

    def allows(self, task: Collection[int], done: Collection[int]) -> bool:
        """Whether all that a task reads is given before it or by itself."""
        givers = (self._giver.get(value) for p in task for value in self._wired[p].reads)
        return all(giver is None or giver in done or giver in task for giver in givers)

    def states(self, done: Collection[int]) -> int:
        """How many there may be: of each live value all placements, or those its last use needs."""
        return prod(self._choices(value, done) for value in self.given(done))

    def _choices(self, value: int, done: Collection[int]) -> int:
        every, readers = self._placements[value], self._readers[value]
        left = [count for position, count in readers.items() if position not in done]
        if self._behind[value] or len(left) > 1:
            return every
        return min(every, *left) if left else 1
