"""What a live value is held as: the placement it was produced in, and those it was used in since.

A holding is a number into its `Stock`. How a value came to its placements is left open until all of
its uses are known: a holding costs the cheapest tree over them, so a later use pays the difference.
"""

from __future__ import annotations

import numpy as np

from tscompile.search.graph import Indices, Prices
from tscompile.search.reshard import Reshards


class Stock:
    """The holdings of values of one view."""

    def __init__(self, reshards: Reshards) -> None:
        self.reshards = reshards
        self._holdings: list[tuple[int, tuple[int, ...]]] = []
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._used: dict[tuple[int, int], int] = {}
        self._reach: Prices = np.zeros((8, len(reshards.placements)), np.complex128)
        self._spent: Prices = np.zeros(8, np.complex128)
        self._root: Indices = np.zeros(8, np.int64)

    def start(self, placement: int) -> int:
        """The holding of one value that was just produced so."""
        return self._number(placement, ())

    def produced(self, placements: Indices) -> Indices:
        """The holdings of values that were just produced so."""
        distinct, where = np.unique(placements, return_inverse=True)
        made: list[int] = distinct.tolist()
        return np.array([self._number(p, ()) for p in made], np.int64)[where]

    def used(self, holdings: Indices, placements: Indices) -> Indices:
        """The holdings after a use of each in its of `placements`."""
        count = len(self.reshards.placements)
        distinct, where = np.unique(holdings * count + placements, return_inverse=True)
        pairs: list[int] = distinct.tolist()
        return np.array([self._used_one(*divmod(p, count)) for p in pairs], np.int64)[where]

    def _used_one(self, holding: int, placement: int) -> int:
        key = (holding, placement)
        if key not in self._used:
            root, used = self._holdings[holding]
            more = used if placement == root else tuple(sorted({*used, placement}))
            self._used[key] = self._number(root, more)
        return self._used[key]

    def reach(self, holdings: Indices) -> Prices:
        """What a use in each placement costs, a row for each of `holdings`."""
        return self._reach[holdings]

    def spent(self, holdings: Indices) -> Prices:
        """What the reshards so far cost."""
        return self._spent[holdings]

    def between_roots(self, holding: int, others: Indices) -> Prices:
        """What it costs to go from where it was produced to where each of `others` was."""
        return self.reshards.between(int(self._root[holding]))[self._root[others]]

    def placements(self, holding: int) -> tuple[int, tuple[int, ...]]:
        """Where it was produced, and its uses."""
        return self._holdings[holding]

    def imitation(self, holding: int, others: Indices, last: Indices | None) -> Prices:
        """For each of `others` a price for which `holding` can do all that the other can.

        `last` lists the placements that a single remaining use may need, where there is only one.
        Otherwise: what it costs to reach where the other was produced, and to redo its reshards.
        """
        if last is not None:
            theirs = self._reach[np.ix_(others, last)]
            price: Prices = (self._reach[holding, last] - theirs).max(axis=1)
        else:
            price = self._reach[holding, self._root[others]] + self._spent[others]
        price[others == holding] = 0
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
