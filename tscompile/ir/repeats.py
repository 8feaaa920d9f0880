"""Layers that stand for several equal ones, and how their numbers map to the model's own.

A graph or draft is *folded* where its layers `first` to `first + period - 1` are but one of `count`
equal groups that the model has in a row: see `trace.fold` and `passes.unfold`. Names carry the
number of their layer, so that a copy is had by counting on in all names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")

_LAYER = re.compile(r"(?<!\w)layers\.(\d+)(?!\w)")


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` times the `period` items from `first` on, one after the other."""

    first: int
    period: int
    count: int

    @property
    def last(self) -> int:
        """The number behind the items."""
        return self.first + self.period


Repeats: TypeAlias = tuple[Repeat, ...]
"""Rising, and apart from one another; numbers are the folded ones."""

Number: TypeAlias = Callable[[int], int]
"""A layer's number by another one."""


class UnlikeLayersError(Exception):
    """Layers that should be alike came to differ: fold fewer. Never seen by a user."""


class Names(dict[str, str]):
    """Names by other ones: in each, layer L becomes `number(L)`."""

    def __init__(self, number: Number) -> None:
        super().__init__()
        self.number = number

    def __missing__(self, name: str) -> str:
        parts = _parts(name)
        number = None if parts is None else self.number(parts[1])
        if parts is None or number == parts[1]:
            self[name] = name
        else:
            self[name] = f"{parts[0]}{number}{parts[2]}"
        return self[name]


@lru_cache(maxsize=1 << 16)
def _parts(name: str) -> tuple[str, int, str] | None:
    """What stands before a name's layer number, the number, and what stands behind."""
    match = _LAYER.search(name)
    return None if match is None else (name[: match.start(1)], int(match[1]), name[match.end(1) :])


def renumbered(text: str, number: Number) -> str:
    """The text with every layer's number mapped."""
    return _LAYER.sub(lambda match: f"layers.{number(int(match[1]))}", text)


def last_copies(repeats: Repeats) -> Number:
    """A layer's number in the model: where it stands for several, that of the last."""

    def number(layer: int) -> int:
        return layer + sum((r.count - 1) * r.period for r in repeats if r.first <= layer)

    return number


def first_copies(repeats: Repeats) -> Number:
    """A layer's number in the model: where it stands for several, that of the first."""

    def number(layer: int) -> int:
        return layer + sum((r.count - 1) * r.period for r in repeats if r.last <= layer)

    return number


def numbers_of(repeats: Repeats, layer: int) -> list[int]:
    """The numbers in the model of all layers that a folded one stands for."""
    first = first_copies(repeats)(layer)
    own = next((r for r in repeats if r.first <= layer < r.last), Repeat(layer, 1, 1))
    return [first + copy * own.period for copy in range(own.count)]


def copies(repeats: Repeats, repeat: Repeat) -> list[Number]:
    """For each copy of a repeated group the numbers in the model, as its own layers see them.

    They see the group before theirs, too: that is the copy before.
    """
    before = sum((r.count - 1) * r.period for r in repeats if r.first < repeat.first)
    return [_shift(before + copy * repeat.period) for copy in range(repeat.count)]


def _shift(by: int) -> Number:
    return lambda layer: layer + by


def times(repeats: Repeats, layer: int | None) -> int:
    """How many of the model's layers a folded one stands for."""
    if layer is None:
        return 1
    return next((r.count for r in repeats if r.first <= layer < r.last), 1)


def unrolled(items: Sequence[T], repeats: Repeats) -> list[T]:
    """One item for each folded layer to one for each of the model's."""
    found: list[T] = []
    at = 0
    for repeat in repeats:
        found += items[at : repeat.first]
        found += list(items[repeat.first : repeat.last]) * repeat.count
        at = repeat.last
    return [*found, *items[at:]]


def rolled(items: Sequence[T], repeats: Repeats) -> list[T]:
    """What `unrolled` made longer.

    Raises UnlikeLayersError where copies differ, or the group before them or behind them does.
    """
    found: list[T] = []
    at = 0
    for repeat in repeats:
        first = at + repeat.first - len(found)
        end = first + repeat.count * repeat.period
        around = items[max(first - repeat.period, 0) : end + repeat.period]
        if len(around) != (repeat.count + 2) * repeat.period:
            raise UnlikeLayersError
        if around[repeat.period :] != around[: -repeat.period]:
            raise UnlikeLayersError
        found += items[at : first + repeat.period]
        at = end
    return [*found, *items[at:]]


def runs(sequence: Sequence[object]) -> list[Repeat]:
    """The whole sequence as stretches that repeat.

    Greedy from the left: the stretch that covers most, the shortest period among those.
    """
    found: list[Repeat] = []
    at = 0
    while at < len(sequence):
        period, count = 1, 1
        for length in range(1, (len(sequence) - at) // 2 + 1):
            repeats = _repeats(sequence[at:], length)
            if repeats > 1 and repeats * length > period * count:
                period, count = length, repeats
        found.append(Repeat(at, period, count))
        at += period * count
    return found


def _repeats(sequence: Sequence[object], length: int) -> int:
    """How often the first `length` items come one after the other at the start."""
    count = 1
    first = list(sequence[:length])
    while list(sequence[count * length : (count + 1) * length]) == first:
        count += 1
    return count
