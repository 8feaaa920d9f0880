"""The annotated boundaries of a program's modules, by the values that cross them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tscompile.ir.draft import Edge


class Boundaries:
    """Edges by value and side."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._entering: dict[str, list[Edge]] = {}
        self._leaving: dict[str, list[Edge]] = {}
        for edge in edges:
            side = self._entering if edge.side == "input" else self._leaving
            side.setdefault(edge.value, []).append(edge)

    def entering(self, value: str, module: str, axis: int) -> Edge | None:
        """The innermost boundary through which `value` reaches `module`.

        Of those that speak of the axis.
        """
        inside = [
            edge
            for edge in self._entering.get(value, ())
            if edge.required[axis] is not None and _lies_in(module, edge)
        ]
        return max(inside, key=lambda edge: len(edge.module), default=None)

    def crossed(self, value: str) -> bool:
        """Whether `value` enters a module through an annotated boundary."""
        return value in self._entering

    def leaving(self, value: str) -> Sequence[Edge]:
        """The boundaries that `value` leaves."""
        return self._leaving.get(value, ())

    def around(self, values: Iterable[str], module: str) -> list[Edge]:
        """All boundaries of modules around `module` that one of the values crosses."""
        return [
            edge
            for value in values
            for side in (self._entering, self._leaving)
            for edge in side.get(value, ())
            if _lies_in(module, edge)
        ]


def _lies_in(module: str, edge: Edge) -> bool:
    return f"{module}.".startswith(f"{edge.module}.")
