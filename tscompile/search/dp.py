"""Dynamic programming through one segment: the state is what each live value is held as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tscompile.search.expansion import Expansion, State
from tscompile.search.graph import Prices
from tscompile.search.segment import Choices, Segment


@dataclass(frozen=True, slots=True)
class Origin:
    """How a state came about: from which state before which op, by which option."""

    position: int
    state: State
    choices: Choices
    option: int


@dataclass(frozen=True, slots=True)
class Reached:
    """A state's price and how it came about (None at the segment's entry)."""

    price: complex
    origin: Origin | None


Frontier: TypeAlias = dict[State, Reached]


@dataclass(slots=True)
class _Pool:
    """Candidates for the states before one op: the cheapest of each."""

    states: Frontier = field(default_factory=dict[State, Reached])

    def offer(self, state: State, price: complex, origin: Origin | None) -> None:
        known = self.states.get(state)
        if known is None or _less(price, known.price):
            self.states[state] = Reached(price, origin)


def _less(one: complex, other: complex) -> bool:
    return (one.real, one.imag) < (other.real, other.imag)


def explore(segment: Segment, entry: Mapping[State, complex]) -> list[Frontier]:
    """The undominated states before each op and after the last, from those at entry."""
    pools = [_Pool() for _ in segment.live]
    for state, price in entry.items():
        pools[0].offer(state, price, None)
    for position, stage in enumerate(segment.stages):
        pools[position].states = undominated(segment, position, pools[position].states)
        states = pools[position].states
        for choices in stage if states else ():
            expansion = Expansion(segment, position, choices, list(states), _prices(states))
            for candidate in expansion.candidates():
                origin = Origin(position, candidate.source, choices, candidate.option)
                pools[position + choices.span].offer(candidate.state, candidate.price, origin)
    end = len(segment.stages)
    pools[end].states = undominated(segment, end, pools[end].states)
    return [pool.states for pool in pools]


def _prices(states: Frontier) -> Prices:
    return np.array([reached.price for reached in states.values()])


def undominated(segment: Segment, position: int, states: Frontier) -> Frontier:
    """Without the states that a cheaper one can imitate by reshards for no more.

    Ties go to the state that was found first.
    """
    ordered = sorted(states.items(), key=lambda item: (item[1].price.real, item[1].price.imag))
    if len(ordered) < 2:
        return dict(ordered)
    prices = np.array([reached.price for _, reached in ordered])
    columns = [_Column(segment, position, k, ordered) for k in range(len(segment.live[position]))]
    alive = np.ones(len(ordered), np.bool_)
    kept: Frontier = {}
    for i, (state, reached) in enumerate(ordered):
        if not alive[i]:
            continue
        kept[state] = reached
        imitated = np.full(len(ordered), reached.price, np.complex128)
        for column, holding in zip(columns, state, strict=True):
            imitated += column.imitation(holding)
        alive &= ~(imitated <= prices)
    return kept


class _Column:
    """One live value over all candidate states."""

    def __init__(
        self,
        segment: Segment,
        position: int,
        k: int,
        ordered: Sequence[tuple[State, Reached]],
    ) -> None:
        value = segment.live[position][k]
        self._stock = segment.stocks[value]
        self._last = segment.last[position].get(value)
        held = [state[k] for state, _ in ordered]
        self._distinct, self._where = np.unique(np.array(held, np.int64), return_inverse=True)
        self._known: dict[int, Prices] = {}

    def imitation(self, holding: int) -> Prices:
        """For each candidate what it costs `holding` to do as its does."""
        if holding not in self._known:
            priced = self._stock.imitation(holding, self._distinct, self._last)
            self._known[holding] = priced[self._where]
        return self._known[holding]
