"""Folding of equal layers: of each run of them a few stay, and one period stands for the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from tscompile.ir.graph import Graph, ModuleEdges, Node, Parameter, layer_of
from tscompile.ir.repeats import Names, Repeat, runs, unrolled

T = TypeVar("T")


def fold(graph: Graph, lead: int, trail: int) -> Graph:
    """The graph of a model with fewer layers, numbered anew, whose `repeats` say what is left out.

    Layers are equal if they differ in nothing but the numbers in their names: their own, and that
    of the layer before. A run of equal ones may have any period; of one that is long enough, `lead`
    periods at its begin and `trail` at its end stay, and one stands for all those between. The
    graph itself comes back where no run is long enough, or layers do not follow one another.
    """
    kept, number, repeats = list[int](), list[int](), list[Repeat]()
    for run in runs(_keys(graph)):
        start, end = len(kept), run.first + run.period * run.count
        head, tail = lead * run.period, trail * run.period
        count = run.count - lead - trail
        if count < 2:
            number += range(start, start + end - run.first)
            kept += range(run.first, end)
            continue
        local = range(start, start + head + run.period + tail)
        number += unrolled(local, (Repeat(head, run.period, count),))
        kept += [*range(run.first, run.first + head + run.period), *range(end - tail, end)]
        repeats.append(Repeat(start + head, run.period, count))
    inner = {n for r in repeats for n in range(r.first, r.last)}
    if not repeats or _reaches(graph, {layer for layer, n in enumerate(number) if n in inner}):
        return graph
    return _only(graph, kept, Names(number.__getitem__), repeats)


def _keys(graph: Graph) -> list[int]:
    """A number for each layer, the same for equal ones.

    Nothing where layers do not simply follow one another.
    """
    groups = [(layer, [*run]) for layer, run in groupby(graph.nodes, lambda n: layer_of(n.module))]
    layers = [layer for layer, _ in groups]
    nodes = {layer: run for layer, run in groups if layer is not None}
    if layers not in ([*nodes], [None, *nodes], [*nodes, None], [None, *nodes, None]):
        return []
    if [*nodes] != [*range(len(graph.caches))]:
        return []
    parameters = _by_layer((layer_of(p.name), p) for p in graph.parameters)
    edges = _by_layer((layer_of(edge.module), edge) for edge in graph.edges)
    keys = (
        (graph.caches[layer], _key(layer, run, parameters.get(layer, []), edges.get(layer, [])))
        for layer, run in nodes.items()
    )
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _by_layer(items: Iterable[tuple[int | None, T]]) -> dict[int | None, list[T]]:
    found: dict[int | None, list[T]] = {}
    for layer, item in items:
        found.setdefault(layer, []).append(item)
    return found


def _key(
    layer: int, nodes: list[Node], parameters: list[Parameter], edges: list[ModuleEdges]
) -> Hashable:
    """Equal for equal layers; unique for one that speaks of others than the one before it."""
    distances: set[int] = set()

    def distance(other: int) -> int:
        distances.add(layer - other)
        return layer - other

    own = Names(distance)
    key = (
        tuple(
            (
                node.op,
                tuple(None if name is None else own[name] for name in node.inputs),
                tuple(own[name] for name in node.outputs),
                tuple(sorted(node.attributes.items())),
                own[node.module],
            )
            for node in nodes
        ),
        tuple(replace(p, name=own[p.name]) for p in parameters),
        tuple((own[e.module], own[e.input], own[e.output], e.boundary) for e in edges),
    )
    return key if distances <= {0, 1} else layer


def _reaches(graph: Graph, inner: set[int]) -> bool:
    """Whether one of the layers `inner` is read by any but itself and the layer after it."""
    for node in graph.nodes:
        layer = layer_of(node.module)
        for name in node.inputs:
            read = None if name is None else layer_of(name)
            if read in inner and (layer is None or read not in (layer, layer - 1)):
                return True
    return False


def _only(graph: Graph, kept: list[int], names: Names, repeats: list[Repeat]) -> Graph:
    """The kept layers, their names and what they name renumbered."""
    stays = {None, *kept}
    return replace(
        graph,
        parameters=tuple(
            replace(p, name=names[p.name]) for p in graph.parameters if layer_of(p.name) in stays
        ),
        caches=tuple(graph.caches[layer] for layer in kept),
        nodes=tuple(node.renamed(names) for node in graph.nodes if layer_of(node.module) in stays),
        edges=tuple(
            ModuleEdges(names[e.module], names[e.input], names[e.output], e.boundary)
            for e in graph.edges
            if layer_of(e.module) in stays
        ),
        output=names[graph.output],
        repeats=tuple(repeats),
    )
