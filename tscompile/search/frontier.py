"""The states before one op as arrays: what live values are held as, prices, ways there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tscompile.search.graph import Indices, Prices

State: TypeAlias = tuple[int, ...]
"""The holdings of the live values, in order of the values' numbers."""


@dataclass(frozen=True, eq=False, slots=True)
class Frontier:
    """States, a row each: `states` [n, live values], `prices` [n].

    `origins` [n, 4] tells how each came about: the position of the op before which it was in which
    row, by which of the stage's batches, by which option; -1 at the segment's entry.
    """

    states: Indices
    prices: Prices
    origins: Indices

    def __len__(self) -> int:
        return len(self.prices)

    def only(self, kept: Indices) -> Frontier:
        """Some of the rows, in this order."""
        return Frontier(self.states[kept], self.prices[kept], self.origins[kept])

    def state(self, row: int) -> State:
        """One row's holdings."""
        held: list[int] = self.states[row].tolist()
        return tuple(held)

    def key(self) -> tuple[int, bytes, bytes]:
        """Equal for frontiers of equal states and prices."""
        return self.states.shape[1], self.states.tobytes(), self.prices.tobytes()

    def relative(self) -> tuple[Frontier, complex]:
        """Prices beyond the cheapest one's, cheapest first, and that price."""
        ordered = self.only(by_price(self.prices))
        least = complex(ordered.prices[0])
        return Frontier(ordered.states, ordered.prices - least, ordered.origins), least


def entering(states: Indices, prices: Prices) -> Frontier:
    """States at a segment's entry."""
    return Frontier(states, prices, np.full((len(prices), 4), -1, np.int64))


def by_price(prices: Prices) -> Indices:
    """Rows by price, earlier ones first where it is equal."""
    return np.lexsort((prices.imag, prices.real))


def cheapest_of_each(parts: Sequence[Frontier]) -> Frontier:
    """All rows by price, of equal states the cheapest (of equally cheap ones the first)."""
    states = np.concatenate([part.states for part in parts])
    prices = np.concatenate([part.prices for part in parts])
    origins = np.concatenate([part.origins for part in parts])
    order = by_price(prices)
    if states.shape[1] == 0:
        return Frontier(states, prices, origins).only(order[:1])
    _, first = np.unique(_packed(states[order]), return_index=True)
    return Frontier(states, prices, origins).only(order[np.sort(first)])


def _packed(states: Indices) -> np.ndarray:
    """Each row as one number where that fits 63 bits, else as one item of bytes."""
    widths = [int(column.max()).bit_length() + 1 for column in states.T] if len(states) else []
    if sum(widths) > 63:
        rows = np.ascontiguousarray(states)
        return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    packed = np.zeros(len(states), np.int64)
    for width, column in zip(widths, states.T, strict=True):
        packed = (packed << width) | column
    return packed
