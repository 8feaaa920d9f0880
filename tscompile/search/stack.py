"""The whole program: each segment a min-plus matrix from entry to exit states, applied in turn.

A matrix is applied to the vector of all entry states at once, so that states which are dominated
over all entries are dropped early. What a segment makes of a vector depends on the differences
between its prices only, so equal layers soon meet a vector that was met before: from there on the
stack costs nothing, and its layers repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tscompile.cost.model import FREE, Price
from tscompile.ir.errors import NoStrategyError
from tscompile.ir.repeats import unrolled
from tscompile.search.dp import explore
from tscompile.search.frontier import Frontier, State, entering
from tscompile.search.graph import decode
from tscompile.search.segment import Choices, Compiled, Segment


@dataclass(frozen=True, slots=True)
class Origin:
    """An option that was taken before the op at `position` of a segment."""

    position: int
    choices: Choices
    option: int


@dataclass(frozen=True, slots=True)
class Passage:
    """One segment of the best run: which, from which state to which, and the options inside."""

    segment: int
    entry: State
    exit: State
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Best:
    """The cheapest run through a program, its repeated segments one after the other."""

    price: Price
    passages: tuple[Passage, ...]


def _frontiers(segment: Segment, vector: Frontier) -> list[Frontier]:
    """The states before each op, from those of `vector` (at relative prices) on."""
    key = vector.key()
    if key not in segment.explored:
        segment.explored[key] = explore(segment, entering(vector.states, vector.prices))
    return segment.explored[key]


def best_run(compiled: Compiled) -> Best:
    """The cheapest way through all segments."""
    vectors = [_start(compiled)]
    price = FREE
    sequence = unrolled(compiled.sequence, compiled.program.repeats)
    for cut in sequence:
        frontier = _frontiers(compiled.segments[cut.segment], vectors[-1])[-1]
        if not len(frontier):
            raise NoStrategyError(
                "no run of the program keeps to what its policy and annotations allow",
                remedy="compare with another policy, or leave the strategies of the op open",
                where=compiled.program.operations[cut.start].name,
            )
        vector, beyond = frontier.relative()
        vectors.append(vector)
        price += decode(beyond)
    exit_ = vectors[-1].state(0)
    passages: list[Passage] = []
    for cut, vector in zip(reversed(sequence), reversed(vectors[:-1]), strict=True):
        passage = _way_back(cut.segment, compiled.segments[cut.segment], vector, exit_)
        passages.append(passage)
        exit_ = passage.entry
    return Best(price, tuple(reversed(passages)))


def _start(compiled: Compiled) -> Frontier:
    """The holdings of the given values that are read."""
    program, stocks = compiled.program, compiled.stocks
    held: list[int] = []
    for name in compiled.sequence[0].names:
        if name in program.given:
            stock = stocks[program.values[name]]
            held.append(stock.start(stock.reshards.index(program.given[name])))
    return entering(np.array([held], np.int64).reshape(1, len(held)), np.zeros(1, np.complex128))


def _way_back(number: int, segment: Segment, vector: Frontier, exit_: State) -> Passage:
    """The way from the entry state that `exit_` was reached from most cheaply."""
    frontiers = _frontiers(segment, vector)
    found: list[Origin] = []
    frontier = frontiers[-1]
    row = int(np.flatnonzero((frontier.states == np.array(exit_, np.int64)).all(axis=1))[0])
    while frontier.origins[row, 0] >= 0:
        origin: list[int] = frontier.origins[row].tolist()
        position, row, choices, option = origin
        found.append(Origin(position, segment.stages[position][choices], option))
        frontier = frontiers[position]
    return Passage(number, frontier.state(row), exit_, tuple(reversed(found)))
