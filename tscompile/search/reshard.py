"""Cheapest reshards: shortest paths in the step graph, trees where a value has several uses.

A value that is needed in several placements is reshared along the cheapest tree from the placement
that it was produced in (Dreyfus and Wagner, "The Steiner problem in graphs", 1971): the tree may
branch at a placement that nobody asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tscompile.cost.model import CostModel, Price
from tscompile.ir.placement import Placements
from tscompile.search.graph import UNREACHABLE, Indices, Prices, StepGraph, decode, step_graph
from tscompile.search.layout import View
from tscompile.search.steps import Step


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a reshard."""

    source: Placements
    target: Placements
    step: Step
    price: Price


class Reshards:
    """Prices of going between the placements of one view, by their index in `placements`."""

    def __init__(self, costs: CostModel, view: View) -> None:
        self.view = view
        self.graph: StepGraph = step_graph(costs.axes, view.digits)
        self.edges: Prices = self.graph.price(costs, view)
        self._between = _all_pairs(self.graph, self.edges)
        self._forward: dict[tuple[int, tuple[int, ...]], Prices] = {}
        self._backward: dict[tuple[int, ...], Prices] = {}

    @property
    def placements(self) -> tuple[Placements, ...]:
        """All legal placements."""
        return self.graph.placements

    def index(self, placements: Placements) -> int:
        """The number of a placement; KeyError where it is not legal."""
        return self.graph.index[placements]

    def between(self, source: int) -> Prices:
        """The cheapest paths from one placement to all."""
        return self._between[source]

    def pairs(self, sources: Indices, targets: Indices) -> Prices:
        """[source, target]: the cheapest paths between all of these."""
        return self._between[sources[:, None], targets]

    def span(self, root: int, used: Sequence[int]) -> complex:
        """The cheapest tree from `root` to all of `used`."""
        return complex(self._to(tuple(sorted(set(used) - {root})))[root])

    def reach(self, root: int, used: Sequence[int]) -> Prices:
        """For every placement what it costs beyond `span(root, used)` to have it too."""
        used = tuple(sorted(set(used) - {root}))
        if not used:
            return self._from(root, ())
        return self._from(root, used) - self.span(root, used)

    def price(self, source: int, target: int) -> Price:
        """The cheapest path."""
        return decode(complex(self._between[source, target]))

    def _from(self, root: int, used: tuple[int, ...]) -> Prices:
        """Trees from `root` to `used` and each x; the last branch hangs off the path to x."""
        if not used:
            return self._between[root]
        key = (root, used)
        if key not in self._forward:
            branches = [
                self._from(root, tuple(u for u in used if u not in hung)) + self._to(hung)
                for hung in _subsets(used, proper=False)
            ]
            branch = np.minimum.reduce(branches)
            self._forward[key] = (branch[:, None] + self._between).min(axis=0)
        return self._forward[key]

    def _to(self, used: tuple[int, ...]) -> Prices:
        """Trees from each placement to all of `used`."""
        if len(used) < 2:
            return self._between[:, used[0]] if used else np.zeros_like(self._between[0])
        if used not in self._backward:
            parts = [
                self._to(part) + self._to(tuple(u for u in used if u not in part))
                for part in _subsets(used, proper=True)
            ]
            branch = np.minimum.reduce(parts)
            self._backward[used] = (self._between + branch[None, :]).min(axis=1)
        return self._backward[used]

    def path(self, source: int, target: int) -> tuple[Move, ...]:
        """The steps of a cheapest path."""
        return self.tree(source, (target,))

    def tree(self, root: int, used: Sequence[int]) -> tuple[Move, ...]:
        """The steps of a cheapest tree, each starting where one before it (or `root`) ended."""
        moves: list[Move] = []
        pending = [(root, tuple(sorted(set(used) - {root})))]
        while pending:
            at, wanted = pending.pop()
            if not wanted:
                continue
            split = self._split(at, wanted)
            if split is not None:
                pending += [(at, part) for part in split]
                continue
            edge = self._next_edge(at, wanted)
            moves.append(self._move(edge))
            end = int(self.graph.target[edge])
            pending.append((end, tuple(u for u in wanted if u != end)))
        return tuple(moves)

    def _split(self, at: int, wanted: tuple[int, ...]) -> Sequence[tuple[int, ...]] | None:
        """The two sets of `wanted` that separate subtrees at `at` serve, where that is cheapest."""
        for part in _subsets(wanted, proper=True):
            rest = tuple(u for u in wanted if u not in part)
            if self._to(part)[at] + self._to(rest)[at] == self._to(wanted)[at]:
                return rest, part
        return None

    def _next_edge(self, at: int, wanted: tuple[int, ...]) -> int:
        """The first edge out of `at` on a cheapest tree, in order of the placements' numbers."""
        target, total = self._to(wanted), self._to(wanted)[at]
        for edge in np.flatnonzero(self.graph.source == at).tolist():
            if self.edges[edge] + target[self.graph.target[edge]] == total:
                return int(edge)
        raise AssertionError(f"no edge leaves {at} towards {wanted}")

    def _move(self, edge: int) -> Move:
        graph = self.graph
        return Move(
            graph.placements[int(graph.source[edge])],
            graph.placements[int(graph.target[edge])],
            graph.step(edge),
            decode(complex(self.edges[edge])),
        )


def _all_pairs(graph: StepGraph, edges: Prices) -> Prices:
    """Cheapest paths between all placements (Floyd, "Algorithm 97: Shortest path", 1962)."""
    count = len(graph.placements)
    between: Prices = np.full((count, count), UNREACHABLE, np.complex128)
    np.minimum.at(between, (graph.source, graph.target), edges)
    between[np.arange(count), np.arange(count)] = 0
    for k in range(count):
        np.minimum(between, between[:, k, None] + between[None, k, :], out=between)
    return between


def _subsets(items: tuple[int, ...], *, proper: bool) -> Iterable[tuple[int, ...]]:
    """Non-empty subsets; the proper ones without the last item, so that each split comes once."""
    chosen = items[:-1] if proper else items
    for count in range(1, len(chosen) + 1):
        yield from itertools.combinations(chosen, count)
