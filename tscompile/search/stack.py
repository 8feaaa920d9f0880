"""The whole program: each segment a min-plus matrix from entry to exit states, applied in turn.

A matrix is applied to the vector of all entry states at once, so that states which are dominated
over all entries are dropped early. What a segment makes of a vector depends on the differences
between its prices only, so equal layers soon meet a vector that was met before: from there on the
stack costs nothing, and its layers repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tscompile.cost.model import FREE, Price
from tscompile.ir.errors import NoStrategyError
from tscompile.ir.repeats import unrolled
from tscompile.search._core import Explored, States
from tscompile.search.graph import decode
from tscompile.search.segment import Choices, Compiled, Segment

State: TypeAlias = tuple[int, ...]
"""The holdings of the live values, in order of the values' numbers."""


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


def best_run(compiled: Compiled) -> Best:
    """The cheapest way through all segments."""
    states = [_start(compiled)]
    explored: list[Explored] = []
    price = FREE
    sequence = unrolled(compiled.sequence, compiled.program.repeats)
    for cut in sequence:
        found = compiled.segments[cut.segment].core.explore(states[-1])
        if not len(found.exit):
            raise NoStrategyError(
                "no run of the program keeps to what its policy and annotations allow",
                remedy="compare with another policy, or leave the strategies of the op open",
                where=compiled.program.operations[cut.start].name,
            )
        states.append(found.exit)
        explored.append(found)
        price += decode(found.least)
    exit_ = states[-1].held(0)
    passages: list[Passage] = []
    for cut, entry, found in zip(
        reversed(sequence), reversed(states[:-1]), reversed(explored), strict=True
    ):
        passage = _passage(cut.segment, compiled.segments[cut.segment], entry, found, exit_)
        passages.append(passage)
        exit_ = passage.entry
    return Best(price, tuple(reversed(passages)))


def _start(compiled: Compiled) -> States:
    """The holdings of the given values that are read."""
    program, reshards = compiled.program, compiled.reshards
    held: list[int] = []
    for name in compiled.sequence[0].names:
        if name in program.given:
            given = reshards[program.values[name]]
            held.append(given.stock.start(given.index(program.given[name])))
    return States(held)


def _passage(
    number: int, segment: Segment, states: States, explored: Explored, exit_: State
) -> Passage:
    """The way from the one of `states` that `exit_` was reached from most cheaply."""
    row, origins = explored.passage(exit_)
    taken = (
        Origin(segment.order[place], segment.stages[segment.order[place]][choices], option)
        for place, choices, option in origins
    )
    in_order = tuple(sorted(taken, key=lambda origin: origin.position))
    return Passage(number, states.held(row), exit_, in_order)
