"""Give every value one rank's shape: weights cut, offsets by coordinate, linears packed."""

from __future__ import annotations

from dataclasses import replace

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight
from tscompile.ir.errors import UnsupportedLayoutError
from tscompile.ir.graph import Node
from tscompile.ir.placement import Shard, axes_with, label, local_shape, sharded_dims
from tscompile.passes.packing import pack
from tsruntime.artifact.schema import (
    Attribute,
    CacheGroup,
    CacheStorage,
    KvCache,
    Mesh,
    RankIndex,
)


def localize(draft: Draft) -> Draft:
    """Local types everywhere, then linears of one input packed into one."""
    mesh = draft.mesh
    local = replace(
        draft,
        kv_cache=_local_cache(draft),
        weights={name: _local_weight(mesh, w) for name, w in draft.weights.items()},
        programs=tuple(_local_program(mesh, program) for program in draft.programs),
    )
    return pack(local)


def _local_program(mesh: Mesh, program: DraftProgram) -> DraftProgram:
    values = {name: _local_value(mesh, v) for name, v in program.values.items()}
    nodes = tuple(_local_node(mesh, node, program) for node in program.nodes)
    return replace(program, values=values, nodes=nodes)


def _local_value(mesh: Mesh, value: DraftValue) -> DraftValue:
    shape = local_shape(mesh, value.type.shape, value.placements)
    if shape == value.type.shape:
        return value
    return replace(value, type=replace(value.type, shape=shape))


def _local_node(mesh: Mesh, node: Node, program: DraftProgram) -> Node:
    """An embedding's rows begin where this rank's part of the vocabulary does."""
    if node.op != "embedding" or node.inputs[1] is None:
        return node
    weight = program.values[node.inputs[1]]
    axes = axes_with(mesh, weight.placements, Shard(0))
    if not axes:
        return node
    rows = local_shape(mesh, weight.type.shape, weight.placements)[0]
    start: dict[str, Attribute] = {"vocab_start": RankIndex(axes, rows)}
    return replace(node, attributes={**node.attributes, **start})


def _local_weight(mesh: Mesh, weight: DraftWeight) -> DraftWeight:
    dims = sharded_dims(weight.placements)
    if not dims:
        return weight
    if len(dims) > 1:
        raise UnsupportedLayoutError(
            f"weight {weight.name} is cut in two dims: {label(mesh, weight.placements)}",
            remedy="annotate it over groups that cut one dim only",
            where=weight.name,
        )
    dim = max(dims)
    axes = axes_with(mesh, weight.placements, Shard(dim))
    shape = local_shape(mesh, weight.type.shape, weight.placements)
    parts = tuple(
        replace(p, dim=dim, axes=axes, padded=p.padded or p.shape[dim]) for p in weight.parts
    )
    return replace(weight, type=replace(weight.type, shape=shape), parts=parts)


def _local_cache(draft: Draft) -> KvCache:
    """KV heads of one rank, as the caches of the first program are placed."""
    groups = tuple(_local_group(draft, group) for group in draft.kv_cache.groups)
    return replace(draft.kv_cache, groups=groups)


def _local_group(draft: Draft, group: CacheGroup) -> CacheGroup:
    for value in draft.programs[0].values.values():
        if isinstance(value.storage, CacheStorage) and value.storage.group == group.name:
            axes = axes_with(draft.mesh, value.placements, Shard(2))
            return replace(group, kv_heads=group.kv_heads // draft.mesh.size(axes), axes=axes)
    raise AssertionError(f"no program touches cache group {group.name}")
