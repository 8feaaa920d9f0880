"""Dynamic programming through one segment: the state is what each live value is held as."""

from __future__ import annotations

import numpy as np

from tscompile.search.expansion import Expansion
from tscompile.search.frontier import Frontier, cheapest_of_each
from tscompile.search.graph import Indices, Prices
from tscompile.search.segment import Segment


def explore(segment: Segment, entry: Frontier) -> list[Frontier]:
    """The undominated states before each op and after the last, from those at entry."""
    pools: list[list[Frontier]] = [[] for _ in segment.live]
    pools[0].append(entry)
    reached: list[Frontier] = []
    for position, pool in enumerate(pools):
        width = len(segment.live[position])
        nothing = Frontier(
            np.zeros((0, width), np.int64), np.zeros(0, np.complex128), np.zeros((0, 4), np.int64)
        )
        frontier = undominated(segment, position, cheapest_of_each(pool)) if pool else nothing
        reached.append(frontier)
        stage = segment.stages[position] if position < len(segment.stages) else ()
        for number, choices in enumerate(stage if len(frontier) else ()):
            candidates = Expansion(segment, position, number, frontier).candidates()
            pools[position + choices.span].append(candidates)
    return reached


def undominated(segment: Segment, position: int, frontier: Frontier) -> Frontier:
    """Without the states that a cheaper one can imitate by reshards for no more.

    `frontier` comes by price. Ties go to the state that was found first.
    """
    if len(frontier) < 2:
        return frontier
    prices = frontier.prices
    columns = [
        _Column(segment, position, k, frontier.states[:, k])
        for k in range(len(segment.live[position]))
    ]
    alive = np.ones(len(frontier), np.bool_)
    kept: list[int] = []
    for i in range(len(frontier)):
        if not alive[i]:
            continue
        kept.append(i)
        imitated = np.full(len(frontier), prices[i], np.complex128)
        for column in columns:
            imitated += column.imitation(int(column.held[i]))
        alive &= ~(imitated <= prices)
    return frontier.only(np.array(kept, np.int64))


class _Column:
    """One live value over all candidate states."""

    def __init__(self, segment: Segment, position: int, k: int, held: Indices) -> None:
        value = segment.live[position][k]
        self.held = held
        self._stock = segment.stocks[value]
        self._last = segment.last[position].get(value)
        self._distinct, self._where = np.unique(held, return_inverse=True)
        self._known: dict[int, Prices] = {}

    def imitation(self, holding: int) -> Prices:
        """For each candidate what it costs `holding` to do as its does."""
        if holding not in self._known:
            priced = self._stock.imitation(holding, self._distinct, self._last)
            self._known[holding] = priced[self._where]
        return self._known[holding]
