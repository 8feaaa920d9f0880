"""What a folded draft stands for: nodes, values and weights once for every copy of their layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias, TypeVar

from tscompile.ir.draft import DraftProgram
from tscompile.ir.graph import Node, layer_of
from tscompile.ir.repeats import Names, Repeat, Repeats, copies, last_copies

K = TypeVar("K")
T = TypeVar("T")

Group: TypeAlias = int | None
"""A repeated group of layers by its number among the repeats, None for what is there once."""


class Unfolding:
    """The names of all copies, which programs share."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self.once = Names(last_copies(repeats))
        self._copies = [[Names(number) for number in copies(repeats, r)] for r in repeats]

    def names(self, group: Group) -> Sequence[Names]:
        """The names of each copy of a group."""
        return (self.once,) if group is None else self._copies[group]

    def group_of(self, name: str) -> Group:
        """Which group a module's, weight's or bound value's layer is of."""
        layer = layer_of(name)
        if layer is None:
            return None
        found = (i for i, r in enumerate(self._repeats) if r.first <= layer < r.last)
        return next(found, None)

    def stretches(self, program: DraftProgram) -> list[tuple[Group, Sequence[Node]]]:
        """The program's nodes in order, cut where a repeated group begins and where it ends."""
        at, nodes = 0, program.nodes
        found: list[tuple[Group, Sequence[Node]]] = []
        for index, repeat in enumerate(self._repeats):
            _, first, last, _ = bounds(nodes, repeat)
            found += [(None, nodes[at:first]), (index, nodes[first:last])]
            at = last
        return [*found, (None, nodes[at:])]

    def groups(
        self, program: DraftProgram, stretches: Iterable[tuple[Group, Sequence[Node]]]
    ) -> dict[str, Group]:
        """The group of every value: those that are produced are of the stretch that does so."""
        values, of = program.values, self.group_of
        groups = {name: of(name) for name, value in values.items() if value.is_bound}
        for group, nodes in stretches:
            groups.update((name, group) for node in nodes for name in node.outputs)
        return groups

    def each(self, items: Mapping[K, T], groups: Mapping[K, Group]) -> Iterator[tuple[T, Names]]:
        """Every item with the names of its copy: stretches of a group's one after the other."""
        for group, run in groupby(items, key=groups.__getitem__):
            keys = list(run)
            for names in self.names(group):
                yield from ((items[key], names) for key in keys)


def bounds(nodes: Sequence[Node], repeat: Repeat) -> tuple[int, int, int, int]:
    """Where the group before a repeated one begins, where itself, the one behind, and what follows.

    A group lasts from the first node of its first layer to that of the layer behind it.
    """
    starts: dict[int | None, int] = {}
    for index, node in enumerate(nodes):
        starts.setdefault(node.layer, index)
    first, last, period = repeat.first, repeat.last, repeat.period
    before, own, behind, rest = (
        starts[layer] for layer in (first - period, first, last, last + period)
    )
    return before, own, behind, rest
