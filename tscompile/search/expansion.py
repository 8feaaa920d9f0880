"""What a batch of options makes of all states before an op, without what is plainly dominated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tscompile.search.graph import Indices, Prices
from tscompile.search.segment import Choices, Segment

State: TypeAlias = tuple[int, ...]
"""The holdings of the live values, in order of the values' numbers."""

_ROUNDS = 200
"""Candidates that the others are compared with here; the final comparison is `dp.undominated`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A state after the op, its price, and how it came about."""

    state: State
    price: complex
    source: State
    option: int


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

    def __init__(
        self,
        segment: Segment,
        position: int,
        choices: Choices,
        states: Sequence[State],
        prices: Prices,
    ) -> None:
        self._segment, self._choices, self._states = segment, choices, states
        self._live = segment.live[position]
        self._after = segment.live[position + choices.span]
        self._last = segment.last[position + choices.span]
        self._held = {
            value: np.array([state[k] for state in states], np.int64)
            for k, value in enumerate(self._live)
        }
        self._prices = prices
        self._across: dict[int, Prices] = {}

    def candidates(self) -> Iterator[Candidate]:
        """Those that no cheaper one can imitate by reshards for less."""
        columns = self._promising()
        choices, stocks = self._choices, self._segment.stocks
        totals: list[complex] = columns.total.tolist()
        pairs: list[list[int]] = np.stack([columns.state, columns.option], axis=1).tolist()
        for (k, option), total in zip(pairs, totals, strict=True):
            now = dict(zip(self._live, self._states[k], strict=True))
            for row, value in enumerate(choices.inputs):
                now[value] = stocks[value].used(now[value], int(choices.requires[row, option]))
            for row, value in enumerate(choices.outputs):
                now[value] = stocks[value].produced(int(choices.gives[row, option]))
            state = tuple(now[value] for value in self._after)
            yield Candidate(state, total, self._states[k], option)

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
        shape = (len(self._states), len(choices.prices))
        total: Prices = self._prices[:, None] + choices.prices[None, :]
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
            price: Prices = np.zeros(len(self._states), np.complex128)
            for value in self._live:
                if value in self._after:
                    price += self._value_from_state(value, k)
            self._across[k] = price
        return self._across[k]

    def _value_from_state(self, value: int, k: int) -> Prices:
        stock, held = self._segment.stocks[value], self._held[value]
        if value in self._choices.inputs:
            return stock.between_roots(int(held[k]), held)
        distinct, where = np.unique(held, return_inverse=True)
        return stock.imitation(int(held[k]), distinct, self._last.get(value))[where]
