"""Cheapest reshards: shortest paths in the step graph, trees where a value has several uses.

A value that is needed in several placements is reshared along the cheapest tree from the placement
that it was produced in; the tree may branch at a placement that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tscompile.cost.model import CostModel, Price
from tscompile.ir.placement import Placements
from tscompile.search._core import Stock, Trees
from tscompile.search.graph import Prices, StepGraph, decode, step_graph
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
    """Prices of going between the placements of one view, by their index in `placements`.

    `stock` numbers what values of the view are held as.
    """

    def __init__(self, costs: CostModel, view: View) -> None:
        self.view = view
        self.graph: StepGraph = step_graph(costs.axes, view.digits)
        self.edges: Prices = self.graph.price(costs, view)
        self._trees = Trees(len(self.placements), self.graph.source, self.graph.target, self.edges)
        self.stock = Stock(self._trees)

    @property
    def placements(self) -> tuple[Placements, ...]:
        """All legal placements."""
        return self.graph.placements

    def index(self, placements: Placements) -> int:
        """The number of a placement; KeyError where it is not legal."""
        return self.graph.index[placements]

    def span(self, root: int, used: Sequence[int]) -> complex:
        """The cheapest tree from `root` to all of `used`."""
        return self._trees.span(root, used)

    def price(self, source: int, target: int) -> Price:
        """The cheapest path."""
        return decode(self._trees.price(source, target))

    def path(self, source: int, target: int) -> tuple[Move, ...]:
        """The steps of a cheapest path."""
        return self.tree(source, (target,))

    def tree(self, root: int, used: Sequence[int]) -> tuple[Move, ...]:
        """The steps of a cheapest tree, each starting where one before it (or `root`) ended."""
        return tuple(self._move(edge) for edge in self._trees.steps(root, used))

    def _move(self, edge: int) -> Move:
        graph = self.graph
        return Move(
            graph.placements[int(graph.source[edge])],
            graph.placements[int(graph.target[edge])],
            graph.step(edge),
            decode(complex(self.edges[edge])),
        )
