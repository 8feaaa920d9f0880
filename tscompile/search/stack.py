"""The whole program: each segment a min-plus matrix from entry to exit states, applied in turn.

A matrix is applied to the vector of all entry states at once, so that states which are dominated
over all entries are dropped early. What a segment makes of a vector depends on the differences
between its prices only, so equal layers soon meet a vector that was met before: from there on the
stack costs nothing, and its layers repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tscompile.cost.model import FREE, Price
from tscompile.search.dp import Frontier, Origin, explore
from tscompile.search.expansion import State
from tscompile.search.graph import decode
from tscompile.search.segment import Compiled, Segment

Vector: TypeAlias = tuple[tuple[State, complex], ...]
"""States with their prices beyond the cheapest one's, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One segment of the best run: which, from which state to which, and the options inside."""

    segment: int
    entry: State
    exit: State
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Best:
    """The cheapest run through a program."""

    price: Price
    passages: tuple[Passage, ...]


class _Matrix:
    """One segment, and the vectors that it was applied to."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._known: dict[Vector, list[Frontier]] = {}

    def frontiers(self, vector: Vector) -> list[Frontier]:
        """The states before each op, from those of `vector` on."""
        if vector not in self._known:
            self._known[vector] = explore(self._segment, dict(vector))
        return self._known[vector]


def best_run(compiled: Compiled) -> Best:
    """The cheapest way through all segments."""
    matrices = [_Matrix(segment) for segment in compiled.segments]
    vectors: list[Vector] = [((_start(compiled), 0j),)]
    price = FREE
    for cut in compiled.sequence:
        vector, beyond = _relative(matrices[cut.segment].frontiers(vectors[-1])[-1])
        vectors.append(vector)
        price += decode(beyond)
    exit_ = vectors[-1][0][0]
    passages: list[Passage] = []
    for cut, vector in zip(reversed(compiled.sequence), reversed(vectors[:-1]), strict=True):
        entry, origins = _way_back(matrices[cut.segment].frontiers(vector), exit_)
        passages.append(Passage(cut.segment, entry, exit_, origins))
        exit_ = entry
    return Best(price, tuple(reversed(passages)))


def _start(compiled: Compiled) -> State:
    """The holdings of the given values that are read."""
    program, stocks = compiled.program, compiled.stocks
    held: list[int] = []
    for name in compiled.sequence[0].names:
        if name in program.given:
            stock = stocks[program.values[name]]
            held.append(stock.produced(stock.reshards.index(program.given[name])))
    return tuple(held)


def _relative(frontier: Frontier) -> tuple[Vector, complex]:
    """The vector of a frontier, and the price of its cheapest state."""
    ordered = sorted(
        ((state, reached.price) for state, reached in frontier.items()),
        key=lambda item: (item[1].real, item[1].imag),
    )
    least = ordered[0][1]
    return tuple((state, price - least) for state, price in ordered), least


def _way_back(frontiers: Sequence[Frontier], exit_: State) -> tuple[State, tuple[Origin, ...]]:
    """The entry state that `exit_` was reached from most cheaply, and the options between."""
    found: list[Origin] = []
    state, reached = exit_, frontiers[-1][exit_]
    while reached.origin is not None:
        found.append(reached.origin)
        state = reached.origin.state
        reached = frontiers[reached.origin.position][state]
    return state, tuple(reversed(found))


def runs(sequence: Sequence[object]) -> list[tuple[int, int, int]]:
    """The sequence as (start, period, count): each stretch repeats `period` items `count` times.

    Greedy from the left: the stretch that covers most, the shortest period among those.
    """
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(sequence):
        period, count = 1, 1
        for length in range(1, (len(sequence) - at) // 2 + 1):
            repeats = _repeats(sequence[at:], length)
            if repeats > 1 and repeats * length > period * count:
                period, count = length, repeats
        found.append((at, period, count))
        at += period * count
    return found


def _repeats(sequence: Sequence[object], length: int) -> int:
    """How often the first `length` items come one after the other at the start."""
    count = 1
    first = list(sequence[:length])
    while list(sequence[count * length : (count + 1) * length]) == first:
        count += 1
    return count
