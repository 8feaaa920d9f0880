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
class _Stretch:
    """One segment of a program, by number, with the states before it and what it makes of them."""

    number: int
    segment: Segment
    entry: States
    explored: Explored


@dataclass(frozen=True, slots=True)
class Best:
    """The cheapest run through a program, its repeated segments one after the other."""

    price: Price
    stretches: tuple[_Stretch, ...]

    def passages(self) -> tuple[Passage, ...]:
        """What it does in each segment, traced back from the end."""
        found: list[Passage] = []
        exit_ = self.stretches[-1].explored.exit.held(0)
        for stretch in reversed(self.stretches):
            found.append(_passage(stretch, exit_))
            exit_ = found[-1].entry
        return tuple(reversed(found))


def best_run(compiled: Compiled) -> Best:
    """The cheapest way through all segments."""
    states = _start(compiled)
    stretches: list[_Stretch] = []
    price = FREE
    for cut in unrolled(compiled.sequence, compiled.program.repeats):
        segment = compiled.segments[cut.segment]
        found = segment.core.explore(states)
        if not len(found.exit):
            raise NoStrategyError(
                "no run of the program keeps to what its policy and annotations allow",
                remedy="compare with another policy, or leave the strategies of the op open",
                where=compiled.program.operations[cut.start].name,
            )
        stretches.append(_Stretch(cut.segment, segment, states, found))
        states = found.exit
        price += decode(found.least)
    return Best(price, tuple(stretches))


def _start(compiled: Compiled) -> States:
    """The holdings of the given values that are read."""
    program, reshards = compiled.program, compiled.reshards
    held: list[int] = []
    for name in compiled.sequence[0].names:
        if name in program.given:
            given = reshards[program.values[name]]
            held.append(given.stock.start(given.index(program.given[name])))
    return States(held)


def _passage(stretch: _Stretch, exit_: State) -> Passage:
    """The way from the state before a stretch that `exit_` was reached from most cheaply."""
    segment = stretch.segment
    row, origins = stretch.explored.passage(exit_)
    taken = (
        Origin(segment.order[place], segment.stages[segment.order[place]][choices], option)
        for place, choices, option in origins
    )
    in_order = tuple(sorted(taken, key=lambda origin: origin.position))
    return Passage(stretch.number, stretch.entry.held(row), exit_, in_order)
