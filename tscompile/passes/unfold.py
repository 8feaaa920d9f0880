"""Unfold a draft: each repeated group of layers once for every group that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tscompile.ir.draft import Draft, DraftProgram, Edge
from tscompile.ir.graph import Node
from tscompile.ir.repeats import Names, Repeat, UnlikeLayersError
from tscompile.ir.unfolding import Unfolding, bounds


def unfold(draft: Draft, most: int | None = None) -> Draft:
    """The draft of the whole model, or of one with at `most` so many copies of each group.

    Of a draft whose copies are alike: see `check_alike`.
    """
    repeats = draft.repeats
    if most is not None:
        repeats = tuple(replace(repeat, count=min(repeat.count, most)) for repeat in repeats)
    unfolding = Unfolding(repeats)
    groups = {name: unfolding.group_of(name) for name in draft.weights}
    weights = [w.renamed(names) for w, names in unfolding.each(draft.weights, groups)]
    return replace(
        draft,
        weights={weight.name: weight for weight in weights},
        programs=tuple(_program(unfolding, program) for program in draft.programs),
        repeats=(),
    )


def _program(unfolding: Unfolding, program: DraftProgram) -> DraftProgram:
    """Nodes and values in the order that they would have had."""
    stretches = unfolding.stretches(program)
    values = unfolding.each(program.values, unfolding.groups(program, stretches))
    return replace(
        program,
        values={value.name: value for value in (v.renamed(names) for v, names in values)},
        nodes=tuple(
            [
                node.renamed(names)
                for group, nodes in stretches
                for names in unfolding.names(group)
                for node in nodes
            ]
        ),
        output=unfolding.once[program.output],
        edges=_edges(unfolding, program),
    )


def _edges(unfolding: Unfolding, program: DraftProgram) -> tuple[Edge, ...]:
    edges = {(edge.module, edge.side): edge for edge in program.edges}
    groups = {key: unfolding.group_of(key[0]) for key in edges}
    return tuple(edge.renamed(names) for edge, names in unfolding.each(edges, groups))


def check_alike(draft: Draft) -> None:
    """Raise UnlikeLayersError where a repeated group is not done as those before and behind it.

    Then the draft is not the whole model's.
    """
    for program in draft.programs:
        for repeat in draft.repeats:
            _check_alike(program, repeat)


def _check_alike(program: DraftProgram, repeat: Repeat) -> None:
    """The groups differ in nothing but their numbers."""
    names, values = following(repeat), program.values
    for here, there in pairwise(alike(program.nodes, repeat)):
        if tuple(node.renamed(names) for node in here) != there:
            raise UnlikeLayersError
        touched = {name for node in here for name in (*node.inputs, *node.outputs) if name}
        for name in touched:
            if values[name].renamed(names) != values.get(names[name]):
                raise UnlikeLayersError


def alike(nodes: Sequence[Node], repeat: Repeat) -> tuple[tuple[Node, ...], ...]:
    """The nodes of the group before a repeated one, its own, and those of the group behind."""
    return tuple(tuple(nodes[a:b]) for a, b in pairwise(bounds(nodes, repeat)))


def following(repeat: Repeat) -> Names:
    """Names of the group behind by those of a repeated group, and of that by the one before."""
    return Names(lambda layer: layer + repeat.period)
