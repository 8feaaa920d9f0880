"""Dynamic programming through one segment: the state is what each live value is held as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tscompile.search.graph import Indices, Prices
from tscompile.search.segment import Choices, Segment

State: TypeAlias = tuple[int, ...]
"""The holdings of the live values, in order of the values' numbers."""


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
        for choices in stage:
            _expand(segment, position, choices, pools)
    end = len(segment.stages)
    pools[end].states = undominated(segment, end, pools[end].states)
    return [pool.states for pool in pools]


def _expand(segment: Segment, position: int, choices: Choices, pools: Sequence[_Pool]) -> None:
    """Offer what each option makes of each state, unless another of them makes more for less."""
    states = list(pools[position].states)
    if not states:
        return
    live, after = segment.live[position], segment.live[position + choices.span]
    held = {value: np.array([s[k] for s in states], np.int64) for k, value in enumerate(live)}
    total = _totals(segment, pools[position].states, held, choices)
    chosen = _promising(segment, held, choices, after, total)
    pool = pools[position + choices.span]
    for k, option in np.argwhere(chosen).tolist():
        now = dict(zip(live, states[k], strict=True))
        for row, value in enumerate(choices.inputs):
            stock = segment.stocks[value]
            now[value] = stock.used(now[value], int(choices.requires[row, option]))
        for row, value in enumerate(choices.outputs):
            now[value] = segment.stocks[value].produced(int(choices.gives[row, option]))
        origin = Origin(position, states[k], choices, option)
        pool.offer(tuple(now[value] for value in after), complex(total[k, option]), origin)


def _totals(
    segment: Segment, states: Frontier, held: Mapping[int, Indices], choices: Choices
) -> Prices:
    """For each state (row) and option the price with the reshards that it needs."""
    before = np.array([reached.price for reached in states.values()])
    total: Prices = before[:, None] + choices.prices[None, :]
    for row, value in enumerate(choices.inputs):
        total += segment.stocks[value].reach(held[value])[:, choices.requires[row]]
    return total


def _promising(
    segment: Segment,
    held: Mapping[int, Indices],
    choices: Choices,
    after: tuple[int, ...],
    total: Prices,
) -> NDArray[np.bool_]:
    """The options that the state's cheapest one cannot imitate for less.

    It reshards its outputs to where theirs are, and redoes their reshards of values still live.
    """
    best = total.argmin(axis=1)
    imitated: Prices = np.repeat(total[np.arange(len(best)), best][:, None], total.shape[1], axis=1)
    for row, value in enumerate(choices.inputs):
        if value in after:
            stock = segment.stocks[value]
            imitated += stock.reach(held[value])[:, choices.requires[row]]
            imitated += stock.spent(held[value])[:, None]
    for row, value in enumerate(choices.outputs):
        stock, gives = segment.stocks[value], choices.gives[row]
        made = np.array([stock.produced(int(gives[b])) for b in best], np.int64)
        imitated += stock.reach(made)[:, gives]
    return ~(imitated < total)


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
