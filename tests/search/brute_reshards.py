"""Cheapest ways between placements, one step at a time (Dijkstra)."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from search.brute_prices import NOTHING, Cost, Machine, Place, Prices, plus

from tscompile.search.layout import View
from tscompile.search.program import Program


class Reshards(Prices):
    """All steps that there are, and what several of them cost together."""

    def __init__(self, program: Program, machine: Machine) -> None:
        super().__init__(program, machine)
        self._distances: dict[tuple[View, Place], dict[Place, Cost]] = {}

    def _neighbours(self, view: View, place: Place) -> Iterator[tuple[Place, Cost]]:
        for count in range(1, len(self.axes) + 1):
            for chosen in itertools.combinations(range(len(self.axes)), count):
                old = {place[i] for i in chosen}
                if len(old) != 1:
                    continue
                names = [self.axes[i] for i in chosen]
                dims = [str(d) for d, digits in enumerate(view.digits) if set(names) <= set(digits)]
                for new in ("R", "P", *dims):
                    source = next(iter(old))
                    if new != source:
                        target = tuple(new if i in chosen else p for i, p in enumerate(place))
                        price = self._step(view, place, target, names, source, new)
                        if price is not None:
                            yield target, price

    def _step(
        self, view: View, place: Place, target: Place, names: list[str], old: str, new: str
    ) -> Cost | None:
        before, behind = self._tile(view, place), self._tile(view, target)
        extra: list[Cost] = []
        for letter, at, size in ((new, place, before), (old, target, behind)):
            if letter not in "RP":
                dim = int(letter)
                digits = [a for a in reversed(view.digits[dim]) if at[self.axes.index(a)] != letter]
                if sorted(digits, key=lambda a: a not in names) != digits:
                    extra.append(self._kernel(2 * size))
                leading = math.prod(self._extent(view, at, d) for d in range(dim))
                if leading > 1 and old != "R":
                    extra.append(self._kernel(2 * size))
        launch = (self.machine.launch, 1, 0)
        match old, new:
            case "R", _:
                return plus(self._kernel(2 * behind), *extra)
            case "P", "R":
                return plus(self._wire("AR", names, before), launch)
            case "P", _:
                return plus(self._wire("RS", names, before), launch, *extra)
            case _, "R":
                return plus(self._wire("AG", names, before), launch, *extra)
            case _, "P":
                return None
            case _:
                return plus(self._wire("A2A", names, before), launch, *extra)

    def distances(self, view: View, source: Place) -> dict[Place, Cost]:
        """Cheapest ways from one placement to all others."""
        key = (view, source)
        if key not in self._distances:
            found: dict[Place, Cost] = {}
            queue: list[tuple[Cost, Place]] = [(NOTHING, source)]
            while queue:
                cost, place = heapq.heappop(queue)
                if place in found:
                    continue
                found[place] = cost
                for target, step in self._neighbours(view, place):
                    if target not in found:
                        heapq.heappush(queue, (plus(cost, step), target))
            self._distances[key] = found
        return self._distances[key]

    def _away(self, view: View, held: frozenset[Place], place: Place) -> Cost:
        return min(self.distances(view, h)[place] for h in held)

    def _acquired(
        self, view: View, held: frozenset[Place], place: Place, later: int
    ) -> Iterator[tuple[frozenset[Place], Cost]]:
        """Ways to have `place` too: straight, or by others that are kept for later uses.

        Keeping one is idle where it can be had later for no more.
        """
        straight = self._away(view, held, place)
        yield held | {place}, straight
        if not later or place in held:
            return
        for via in self.distances(view, next(iter(held))):
            if via in held or via == place:
                continue
            there = self._away(view, held, via)
            cost = plus(there, self.distances(view, via)[place])
            if cost >= plus(straight, min(there, self.distances(view, place)[via])):
                continue
            yield held | {place, via}, cost
            if later > 1:
                for kept, more in self._acquired(view, held | {via}, place, later - 1):
                    yield kept, plus(there, more)
