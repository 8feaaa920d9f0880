"""What a batch of options makes of all states before an op, without what is plainly dominated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tscompile.search.frontier import Frontier
from tscompile.search.graph import Indices, Prices
from tscompile.search.segment import Segment

_ROUNDS = 200
"""Candidates that the others are compared with here; the final comparison is `dp.undominated`."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Candidates by number of their state and option, with their prices.

    `redo` is what it costs to repeat their reshards of values that stay live.
    """

    state: Indices
    option: Indices
    total: Prices
    redo: Prices

    def only(self, kept: np.ndarray) -> _Columns:
        """Some of them."""
        return _Columns(self.state[kept], self.option[kept], self.total[kept], self.redo[kept])


class Expansion:
    """One batch at one position, over all of its states."""

    def __init__(self, segment: Segment, position: int, number: int, frontier: Frontier) -> None:
        choices = segment.stages[position][number]
        self._segment, self._choices, self._frontier = segment, choices, frontier
        self._position, self._number = position, number
        self._live = segment.live[position]
        self._after = segment.live[position + choices.span]
        self._last = segment.last[position + choices.span]
        self._held = dict(zip(self._live, frontier.states.T, strict=True))
        self._distinct = {
            value: np.unique(held, return_inverse=True) for value, held in self._held.items()
        }
        self._across: dict[int, Prices] = {}

    def candidates(self) -> Frontier:
        """The states after the op that no cheaper one can imitate by reshards for less."""
        columns = self._promising()
        choices, stocks = self._choices, self._segment.stocks
        now = {value: held[columns.state] for value, held in self._held.items()}
        for row, value in enumerate(choices.inputs):
            now[value] = stocks[value].used(now[value], choices.requires[row][columns.option])
        for row, value in enumerate(choices.outputs):
            now[value] = stocks[value].produced(choices.gives[row][columns.option])
        count = len(columns.total)
        states = np.zeros((count, len(self._after)), np.int64)
        for k, value in enumerate(self._after):
            states[:, k] = now[value]
        place = np.array([self._position, 0, self._number, 0], np.int64)
        origins = np.tile(place, (count, 1))
        origins[:, 1], origins[:, 3] = columns.state, columns.option
        return Frontier(states, columns.total, origins)

    def _promising(self) -> _Columns:
        """All options of all states, each compared with the cheapest ones in turn."""
        columns = self._all()
        best = int(columns.total.argmin())
        columns = columns.only(~(self._imitated(columns, best) < columns.total))
        columns = columns.only(np.argsort(columns.total, kind="stable"))
        at = 0
        while at < min(len(columns.total), _ROUNDS):
            kept = ~(self._imitated(columns, at) < columns.total)
            columns = columns.only(kept)
            at += 1
        return columns

    def _all(self) -> _Columns:
        choices, stocks = self._choices, self._segment.stocks
        shape = (len(self._frontier), len(choices.prices))
        total: Prices = self._frontier.prices[:, None] + choices.prices[None, :]
        redo: Prices = np.zeros(shape, np.complex128)
        for row, value in enumerate(choices.inputs):
            stock, held = stocks[value], self._held[value]
            reach = stock.reach(held)[:, choices.requires[row]]
            total += reach
            if value in self._after:
                redo += reach + stock.spent(held)[:, None]
        state, option = np.indices(shape).reshape(2, -1)
        return _Columns(state, option, total.reshape(-1), redo.reshape(-1))

    def _imitated(self, columns: _Columns, i: int) -> Prices:
        """For each candidate what candidate i costs once it can do all that the other can.

        It reshards its outputs to where the other's are, likewise the values that neither read, and
        redoes the other's reshards of values that it read and that stay live.
        """
        k, option = int(columns.state[i]), int(columns.option[i])
        price: Prices = columns.redo + columns.total[i] + self._from_state(k)[columns.state]
        for row, value in enumerate(self._choices.outputs):
            if value in self._after:
                gives = self._choices.gives[row]
                between = self._segment.stocks[value].reshards.between(int(gives[option]))
                price += between[gives[columns.option]]
        return price

    def _from_state(self, k: int) -> Prices:
        """For the values that state k holds and that stay live, what each state's cost to imitate.

        For those that the op reads, only to where they were produced: the rest is in `redo`.
        """
        if k not in self._across:
            price: Prices = np.zeros(len(self._frontier), np.complex128)
            for value in self._live:
                if value in self._after:
                    price += self._value_from_state(value, k)
            self._across[k] = price
        return self._across[k]

    def _value_from_state(self, value: int, k: int) -> Prices:
        stock, held = self._segment.stocks[value], self._held[value]
        if value in self._choices.inputs:
            return stock.between_roots(int(held[k]), held)
        distinct, where = self._distinct[value]
        return stock.imitation(int(held[k]), distinct, self._last.get(value))[where]
