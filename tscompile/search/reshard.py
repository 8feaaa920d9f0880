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

from tscompile.ir.placement import Placements
from tscompile.search.costs import CostModel, Price
from tscompile.search.graph import UNREACHABLE, Prices, StepGraph, decode, step_graph
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
        self._incoming = _Side(self.graph.target, self.graph.source, self.edges)
        by_source = np.argsort(self.graph.source, kind="stable")
        self._outgoing = _Side(
            self.graph.source[by_source], self.graph.target[by_source], self.edges[by_source]
        )
        self._forward: dict[tuple[int, tuple[int, ...]], Prices] = {}
        self._backward: dict[tuple[int, ...], Prices] = {}

    @property
    def placements(self) -> tuple[Placements, ...]:
        """All legal placements."""
        return self.graph.placements

    def index(self, placements: Placements) -> int:
        """The number of a placement; KeyError where it is not legal."""
        return self.graph.index[placements]

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
        return decode(complex(self._from(source, ())[target]))

    def _from(self, root: int, used: tuple[int, ...]) -> Prices:
        """Trees from `root` to `used` and each x; the last branch hangs off the path to x."""
        key = (root, used)
        if key not in self._forward:
            start = self._blank()
            if not used:
                start[root] = 0
            for hung in _subsets(used, proper=False):
                rest = tuple(u for u in used if u not in hung)
                start = np.minimum(start, self._from(root, rest) + self._to(hung))
            self._forward[key] = self._incoming.relaxed(start)
        return self._forward[key]

    def _to(self, used: tuple[int, ...]) -> Prices:
        """Trees from each placement to all of `used`."""
        if used not in self._backward:
            start = self._blank()
            if len(used) < 2:
                start[list(used) or slice(None)] = 0
            for part in _subsets(used, proper=True):
                rest = tuple(u for u in used if u not in part)
                start = np.minimum(start, self._to(part) + self._to(rest))
            self._backward[used] = self._outgoing.relaxed(start)
        return self._backward[used]

    def _blank(self) -> Prices:
        return np.full(len(self.placements), UNREACHABLE, np.complex128)

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
            graph.shapes[int(graph.shape_of[edge])].step,
            decode(complex(self.edges[edge])),
        )


class _Side:
    """Edges grouped by the end that is being priced, for Bellman-Ford in whole arrays."""

    def __init__(self, priced: np.ndarray, other: np.ndarray, edges: Prices) -> None:
        self.nodes, self.starts = np.unique(priced, return_index=True)
        self.other, self.edges = other, edges

    def relaxed(self, start: Prices) -> Prices:
        """The least of `start` and of what any chain of edges makes of it."""
        best = start
        while len(self.nodes):
            through = np.minimum.reduceat(best[self.other] + self.edges, self.starts)
            better = best.copy()
            better[self.nodes] = np.minimum(best[self.nodes], through)
            if np.array_equal(better, best):
                break
            best = better
        return best


def _subsets(items: tuple[int, ...], *, proper: bool) -> Iterable[tuple[int, ...]]:
    """Non-empty subsets; the proper ones without the last item, so that each split comes once."""
    chosen = items[:-1] if proper else items
    for count in range(1, len(chosen) + 1):
        yield from itertools.combinations(chosen, count)
