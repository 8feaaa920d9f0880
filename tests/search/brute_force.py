"""An enumeration of all runs of a small program, written apart from the search.

Its own strategies, fusions, reshards and cost arithmetic (the modules `brute_…` beside this one),
from the numbers of a `Machine`. It drops no state: it only remembers what it has enumerated before.
A placement is a tuple of "R", "P", "0", "1", … (the dim that is cut), one for each axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property

from search.brute_fusions import Fusions
from search.brute_prices import NOTHING, Cost, Machine, Place, place_of, plus
from search.brute_strategies import Way

from tscompile.search.program import Program

Live = tuple[tuple[str, frozenset[Place]], ...]


class BruteForce(Fusions):
    """All runs of `program` on `machine`, fused or not."""

    def __init__(self, program: Program, machine: Machine, *, fuse: bool) -> None:
        super().__init__(program, machine)
        self.fuse = fuse
        self._memo: dict[tuple[int, Live], Cost] = {}
        self._runs: dict[int, list[Way]] = {}

    @cached_property
    def best(self) -> Cost:
        """The cheapest run's picoseconds, launches and bytes."""
        given = {n: frozenset([place_of(p)]) for n, p in self.program.given.items()}
        return self._from(0, self._kept(0, given))

    def _from(self, position: int, live: Live) -> Cost:
        if position == len(self.program.operations):
            return NOTHING
        key = (position, live)
        if key not in self._memo:
            best: Cost | None = None
            for way in self._ways(position):
                for after, cost in self._taken(position, dict(live), way):
                    total = plus(cost, self._from(position + way.span, after))
                    best = total if best is None else min(best, total)
            assert best is not None, self.program.operations[position]
            self._memo[key] = best
        return self._memo[key]

    def _taken(
        self, position: int, held: dict[str, frozenset[Place]], way: Way
    ) -> Iterator[tuple[Live, Cost]]:
        end = position + way.span
        choices: list[list[tuple[str, frozenset[Place], Cost]]] = []
        for name, place in way.needs.items():
            later = len([r for r in self._readers[name] if r >= end])
            view = self.program.values[name]
            choices.append(
                [(name, k, c) for k, c in self._acquired(view, held[name], place, later)]
            )
        made = {name: frozenset([place]) for name, place in way.makes.items()}
        for joint in itertools.product(*choices):
            now = {**held, **{name: kept for name, kept, _ in joint}, **made}
            yield self._kept(end, now), plus(way.cost, *(cost for _, _, cost in joint))

    def _kept(self, position: int, held: dict[str, frozenset[Place]]) -> Live:
        return tuple(
            (name, places)
            for name, places in sorted(held.items())
            if any(r >= position for r in self._readers[name])
        )

    def _ways(self, position: int) -> list[Way]:
        if position not in self._runs:
            found = [w for w, _ in self._single(position)]
            if self.fuse:
                found += self._chained(position) + list(self._reduced(position))
            self._runs[position] = found
        return self._runs[position]
