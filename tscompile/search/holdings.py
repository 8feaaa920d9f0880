"""What a live value is held as: the placement it was produced in, and those it was used in since.

A holding is a number into its `Stock`. How a value came to its placements is left open until all of
its uses are known: a holding costs the cheapest tree over them, so a later use pays the difference.
"""

from __future__ import annotations

import numpy as np

from tscompile.search.graph import Indices, Prices, Times
from tscompile.search.reshard import Reshards

_LARGE = 1 << 18
"""Numbers in an array beyond which a weaker bound, by a smaller array, does."""


class Stock:
    """The holdings of values of one view."""

    def __init__(self, reshards: Reshards) -> None:
        self.reshards = reshards
        self._holdings: list[tuple[int, tuple[int, ...]]] = []
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._after: Indices = np.full((8, len(reshards.placements)), -1, np.int64)
        self._fresh: Indices = np.full(len(reshards.placements), -1, np.int64)
        self._reach: Prices = np.zeros((8, len(reshards.placements)), np.complex128)
        self._spent: Prices = np.zeros(8, np.complex128)
        self._root: Indices = np.zeros(8, np.int64)

    def start(self, placement: int) -> int:
        """The holding of one value that was just produced so."""
        return self._number(placement, ())

    def produced(self, placements: Indices) -> Indices:
        """The holdings of values that were just produced so."""
        found = self._fresh[placements]
        if found.size and found.min() < 0:
            for placement in np.unique(placements[found < 0]).tolist():
                self._fresh[placement] = self._number(placement, ())
            found = self._fresh[placements]
        return found

    def used(self, holdings: Indices, placements: Indices) -> Indices:
        """The holdings after a use of each in its of `placements`."""
        found = self._after[holdings, placements]
        if found.size and found.min() < 0:
            unknown, count = found < 0, len(self.reshards.placements)
            pairs = np.unique(holdings[unknown] * count + placements[unknown])
            for holding, placement in (divmod(pair, count) for pair in pairs.tolist()):
                number = self._used(holding, placement)
                self._after[holding, placement] = number
            found = self._after[holdings, placements]
        return found

    def _used(self, holding: int, placement: int) -> int:
        root, used = self._holdings[holding]
        more = used if placement == root else tuple(sorted({*used, placement}))
        return self._number(root, more)

    def reach(self, holdings: Indices) -> Prices:
        """What a use in each placement costs, a row for each of `holdings`."""
        return self._reach[holdings]

    def spent(self, holdings: Indices) -> Prices:
        """What the reshards so far cost."""
        return self._spent[holdings]

    def placements(self, holding: int) -> tuple[int, tuple[int, ...]]:
        """Where it was produced, and its uses."""
        return self._holdings[holding]

    def replacing_times(self, produced: Indices, last: Indices | None) -> Times:
        """[one, other]: picoseconds for which what is `produced` so can do all that the other can.

        `last` lists the placements that a single remaining use may need, where there is only one.
        """
        if last is None or len(last) * len(produced) ** 2 > _LARGE:
            return self.reshards.pairs(produced, produced).real
        return _excess(self.reshards.pairs(produced, last).real)

    def imitation_times(self, holdings: Indices, last: Indices | None) -> Times:
        """[one, other]: the picoseconds of `imitations` among distinct holdings."""
        if last is not None:
            return _excess(self._reach[holdings[:, None], last].real)
        time = (
            self._reach[holdings[:, None], self._root[holdings]].real + self._spent[holdings].real
        )
        np.fill_diagonal(time, 0)
        return time

    def imitations(self, holdings: Indices, others: Indices, last: Indices | None) -> Prices:
        """For each holding a price for which it can do all that the other can.

        `last` lists the placements that a single remaining use may need, where there is only one.
        Otherwise: what it costs to reach where the other was produced, and to redo its reshards.
        """
        if last is not None:
            theirs = self._reach[others[:, None], last]
            price: Prices = (self._reach[holdings[:, None], last] - theirs).max(axis=1)
            return price
        price = self._reach[holdings, self._root[others]] + self._spent[others]
        price[others == holdings] = 0
        return price

    def _number(self, root: int, used: tuple[int, ...]) -> int:
        key = (root, used)
        if key not in self._numbers:
            number = self._numbers[key] = len(self._holdings)
            self._holdings.append(key)
            if number == len(self._spent):
                self._grow()
            self._root[number] = root
            self._spent[number] = self.reshards.span(root, used)
            self._reach[number] = self.reshards.reach(root, used)
        return self._numbers[key]

    def _grow(self) -> None:
        self._reach = np.concatenate([self._reach, np.zeros_like(self._reach)])
        self._spent = np.concatenate([self._spent, np.zeros_like(self._spent)])
        self._root = np.concatenate([self._root, np.zeros_like(self._root)])
        self._after = np.concatenate([self._after, np.full_like(self._after, -1)])


def _excess(reach: Times) -> Times:
    """[one, other]: what a row takes longer than the other, in the column where that is most."""
    if len(reach) * reach.size <= _LARGE:
        time: Times = (reach[:, None, :] - reach[None, :, :]).max(axis=2)
        return time
    columns = np.ascontiguousarray(reach.T)
    time = columns[0][:, None] - columns[0]
    for column in columns[1:]:
        np.maximum(time, column[:, None] - column, out=time)
    return time
