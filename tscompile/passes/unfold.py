"""Unfold a draft: each repeated group of layers once for every group that it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TypeVar

from tscompile.ir.draft import Draft, DraftProgram, DraftWeight, Edge
from tscompile.ir.graph import Node, layer_of
from tscompile.ir.repeats import Names, Repeat, Repeats, UnlikeLayersError, copies, last_copies

K = TypeVar("K")
T = TypeVar("T")


def unfold(draft: Draft) -> Draft:
    """The draft of the whole model.

    Raises UnlikeLayersError where a repeated group is not done as the groups before and behind it:
    then the draft is not the whole model's.
    """
    if not draft.repeats:
        return draft
    unfolding = _Unfolding(draft.repeats)
    return replace(
        draft,
        weights=unfolding.weights(draft.weights),
        programs=tuple(unfolding.program(program) for program in draft.programs),
        repeats=(),
    )


class _Unfolding:
    """The names of all copies, which programs share."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._once = [Names(last_copies(repeats))]
        self._copies = [[Names(number) for number in copies(repeats, r)] for r in repeats]

    def weights(self, weights: Mapping[str, DraftWeight]) -> dict[str, DraftWeight]:
        """Weights in the order that they would have had."""
        groups = {name: self._group(layer_of(name)) for name in weights}
        copied = [w.renamed(names) for w, names in self._each(weights, groups)]
        return {weight.name: weight for weight in copied}

    def program(self, program: DraftProgram) -> DraftProgram:
        """Nodes and values in the order that they would have had."""
        groups = {n: self._group(layer_of(n)) for n, v in program.values.items() if v.is_bound}
        (once,) = self._once
        nodes: list[Node] = []
        rest = program.nodes
        for index, repeat in enumerate(self._repeats):
            around = alike(program.nodes, repeat)
            _check_alike(program, repeat, around)
            _, group, _ = around
            at = rest.index(group[0])
            nodes += [node.renamed(once) for node in rest[:at]]
            nodes += [node.renamed(names) for names in self._copies[index] for node in group]
            groups.update((name, index) for node in group for name in node.outputs)
            rest = rest[at + len(group) :]
        nodes += [node.renamed(once) for node in rest]
        copied = [v.renamed(names) for v, names in self._each(program.values, groups)]
        return replace(
            program,
            values={value.name: value for value in copied},
            nodes=tuple(nodes),
            output=once[program.output],
            edges=self._edges(program),
        )

    def _edges(self, program: DraftProgram) -> tuple[Edge, ...]:
        edges = {(edge.module, edge.side): edge for edge in program.edges}
        groups = {key: self._group(layer_of(key[0])) for key in edges}
        return tuple(edge.renamed(names) for edge, names in self._each(edges, groups))

    def _group(self, layer: int | None) -> int | None:
        """Which repeated group a layer is of."""
        if layer is None:
            return None
        found = (i for i, r in enumerate(self._repeats) if r.first <= layer < r.last)
        return next(found, None)

    def _each(
        self, items: Mapping[K, T], groups: Mapping[K, int | None]
    ) -> Iterator[tuple[T, Names]]:
        """Every item with the names of its copy: stretches of a group's one after the other."""
        for group, run in groupby(items, key=groups.get):
            keys = list(run)
            for names in self._once if group is None else self._copies[group]:
                yield from ((items[key], names) for key in keys)


def alike(nodes: Sequence[Node], repeat: Repeat) -> tuple[tuple[Node, ...], ...]:
    """The nodes of the group before a repeated one, its own, and those of the group behind.

    A group lasts from the first node of its first layer to that of the layer behind it.
    """
    starts: dict[int | None, int] = {}
    for index, node in enumerate(nodes):
        starts.setdefault(node.layer, index)
    first, last, period = repeat.first, repeat.last, repeat.period
    a, b, c, d = (starts[layer] for layer in (first - period, first, last, last + period))
    return tuple(nodes[a:b]), tuple(nodes[b:c]), tuple(nodes[c:d])


def following(repeat: Repeat) -> Names:
    """Names of the group behind by those of a repeated group, and of that by the one before."""
    return Names(lambda layer: layer + repeat.period)


def _check_alike(program: DraftProgram, repeat: Repeat, groups: Sequence[Sequence[Node]]) -> None:
    """The groups differ in nothing but their numbers."""
    names, values = following(repeat), program.values
    for here, there in pairwise(groups):
        if tuple(node.renamed(names) for node in here) != there:
            raise UnlikeLayersError
        touched = {name for node in here for name in (*node.inputs, *node.outputs) if name}
        for name in touched:
            if values[name].renamed(names) != values.get(names[name]):
                raise UnlikeLayersError
