"""Dynamic programming through one segment: the state is what each live value is held as."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tscompile.search.expansion import expanded
from tscompile.search.frontier import Frontier, cheapest_of_each
from tscompile.search.graph import Indices, Prices, Times
from tscompile.search.segment import Segment

_BLOCK = 32
"""States that others are compared with at once."""


def explore(segment: Segment, entry: Frontier) -> list[Frontier]:
    """The undominated states before each op and after the last, from those at entry."""
    pools: list[list[Frontier]] = [[] for _ in segment.live]
    pools[0].append(entry)
    reached: list[Frontier] = []
    for position, pool in enumerate(pools):
        frontier = _reached(segment, position, pool)
        reached.append(frontier)
        stage = segment.ways[position] if position < len(segment.ways) else ()
        for ways in stage if len(frontier) else ():
            pools[position + ways.span].append(expanded(segment, position, ways, frontier))
    return reached


def _reached(segment: Segment, position: int, pool: list[Frontier]) -> Frontier:
    if pool:
        return undominated(segment, position, cheapest_of_each(pool))
    width = len(segment.live[position])
    return Frontier(
        np.zeros((0, width), np.int64), np.zeros(0, np.complex128), np.zeros((0, 4), np.int64)
    )


def undominated(segment: Segment, position: int, frontier: Frontier) -> Frontier:
    """Without the states that a cheaper one can imitate by reshards for no more.

    `frontier` comes by price. Ties go to the state that was found first.
    """
    if len(frontier) < 2:
        return frontier
    columns = [
        _Column(segment, position, k, frontier.states[:, k])
        for k in range(len(segment.live[position]))
    ]
    rest, kept = np.arange(len(frontier)), list[Indices]()
    while len(rest):
        block, rest = rest[:_BLOCK], rest[_BLOCK:]
        beaten = np.triu(_imitable(frontier.prices, columns, block, block), 1).any(axis=0)
        block = block[~beaten]
        kept.append(block)
        if len(rest):
            rest = rest[~_imitable(frontier.prices, columns, block, rest).any(axis=0)]
    return frontier.only(np.concatenate(kept))


def _imitable(
    prices: Prices, columns: Sequence[_Column], some: Indices, others: Indices
) -> NDArray[np.bool_]:
    """[one, other]: whether one of `some` states can do all that the other can for no more.

    Launches and bytes are looked at only where times are equal.
    """
    time = np.repeat(prices.real[some, None], len(others), axis=1)
    for column in columns:
        time += column.times(some, others)
    limit = prices.real[others]
    found = time < limit
    one, other = np.nonzero(time == limit)
    if len(one):
        price = prices[some[one]]
        for column in columns:
            price += column.prices(some[one], others[other])
        found[one, other] = price <= prices[others[other]]
    return found


class _Column:
    """One live value over all candidate states: what it costs one holding to do as another does."""

    def __init__(self, segment: Segment, position: int, k: int, held: Indices) -> None:
        value = segment.live[position][k]
        self._held, self._stock = held, segment.stocks[value]
        self._last = segment.last[position].get(value)
        distinct, self._where = np.unique(held, return_inverse=True)
        self._times = self._stock.imitation_times(distinct, self._last)

    def times(self, some: Indices, others: Indices) -> Times:
        """[one, other]: picoseconds for the holding in one state to do as the other's."""
        return self._times[self._where[some]].take(self._where[others], axis=1)

    def prices(self, some: Indices, others: Indices) -> Prices:
        """The whole price, for pairs of states."""
        return self._stock.imitations(self._held[some], self._held[others], self._last)
