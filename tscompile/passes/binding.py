"""Turn the groups that annotations name into axes of the mesh: weights, caches, boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tscompile.models.annotations as by_group
from tscompile.ir.draft import DraftWeight, Edge
from tscompile.ir.graph import Graph, ModuleEdges, Parameter, layer_of
from tscompile.ir.placement import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    by_replica,
    replicated,
)
from tscompile.models.annotations import Annotation, CacheLayer, WeightAnnotation
from tskernels.schema import DType, TensorType
from tsruntime.artifact.schema import CacheGroup, Mesh, Stack, WeightPart


def bind_cache_groups(layers: Sequence[CacheLayer], dtype: DType) -> tuple[CacheGroup, ...]:
    """Cache groups with the layers of each; KV heads of all ranks together."""
    groups: dict[str, CacheGroup] = {}
    for index, layer in enumerate(layers):
        window = layer.window or None
        heads, width = layer.kv_heads, layer.head_dim
        new = CacheGroup(layer.group, (), heads, width, dtype, (), window, layer.planes)
        group = groups.get(layer.group, new)
        groups[layer.group] = replace(group, layers=(*group.layers, index))
    return tuple(groups.values())


def bind_weights(graph: Graph, mesh: Mesh, dtype: DType) -> dict[str, DraftWeight]:
    """Weights and constants as whole, padded values, with the placements that bind them."""
    weights = {p.name: _weight(p, mesh, p.dtype(dtype)) for p in graph.parameters}
    for constant in graph.constants:
        type_ = TensorType(dtype.wide, (len(constant.values),))
        weights[constant.name] = DraftWeight(
            constant.name, type_, replicated(mesh), (), constant.values
        )
    return weights


def _weight(parameter: Parameter, mesh: Mesh, dtype: DType) -> DraftWeight:
    """A whole parameter; a dim that may be padded is rounded up to what its ranks divide.

    What may be padded is a vocabulary, which the compiler may replicate instead of cutting it.
    """
    annotation, shape = parameter.annotation, list(parameter.shape)
    placements = replicated(mesh) if annotation is None else bind(mesh, annotation)
    part = WeightPart(parameter.name, parameter.shape)
    if parameter.stacked:
        count, *one = shape
        part = WeightPart(parameter.name, tuple(one), stack=Stack(count))
    if isinstance(annotation, by_group.Shard) and annotation.padded:
        ranks = mesh.size(mesh.groups[annotation.group])
        padded = -(-shape[annotation.dim] // ranks) * ranks
        if padded != shape[annotation.dim]:
            shape[annotation.dim] = padded
            part = replace(part, dim=annotation.dim, padded=padded)
    free = isinstance(annotation, by_group.Shard) and annotation.padded
    layouts = tuple(dict.fromkeys((placements, replicated(mesh)))) if free else ()
    type_ = TensorType(dtype, tuple(shape))
    return DraftWeight(parameter.name, type_, placements, (part,), layouts=layouts)


def bind(mesh: Mesh, annotation: WeightAnnotation) -> Placements:
    """Placements that binding annotations give: their groups' axes, Replicate on the others."""
    placements = list(replicated(mesh))
    for one in annotation if isinstance(annotation, tuple) else (annotation,):
        axes, placement = mesh.groups[one.group], _placement(one)
        for index, axis in enumerate(mesh.axes):
            if axis.name in axes:
                placements[index] = placement
    return tuple(placements)


def bind_cache(mesh: Mesh, layer: CacheLayer) -> Placements:
    """A layer's pool: as its annotation says, and each attention replica its own pages."""
    pairs = zip(bind(mesh, layer.placement), by_replica(mesh), strict=True)
    return tuple(own if own != Replicate() else placed for placed, own in pairs)


def _placement(annotation: Annotation) -> Placement:
    match annotation:
        case by_group.Replicate():
            return Replicate()
        case by_group.Shard(dim=dim):
            return Shard(dim)
        case by_group.Partial():
            return Partial()


def bind_edges(graph: Graph, mesh: Mesh) -> tuple[Edge, ...]:
    """Both sides of every annotated module, layer by layer."""
    ordered = sorted(graph.edges, key=lambda c: -1 if (i := layer_of(c.module)) is None else i)
    return tuple(edge for crossing in ordered for edge in _sides(crossing, mesh))


def _sides(crossing: ModuleEdges, mesh: Mesh) -> tuple[Edge, Edge]:
    def required(annotation: Annotation) -> tuple[Placement | None, ...]:
        axes, placement = mesh.groups[annotation.group], _placement(annotation)
        return tuple(placement if axis.name in axes else None for axis in mesh.axes)

    boundary = crossing.boundary
    return (
        Edge(crossing.module, "input", crossing.input, required(boundary.input)),
        Edge(crossing.module, "output", crossing.output, required(boundary.output)),
    )
