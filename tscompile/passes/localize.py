"""Give every value one rank's shape: weights cut, offsets by coordinate, linears packed."""

from __future__ import annotations

from dataclasses import replace

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight
from tscompile.ir.errors import UnsupportedLayoutError
from tscompile.ir.graph import Node
from tscompile.ir.placement import Shard, axes_with, label, local_shape, sharded_dims
from tscompile.passes.packing import pack
from tskernels.schema import TensorType
from tsruntime.artifact.schema import (
    Attribute,
    CacheGroup,
    CacheStorage,
    KvCache,
    Mesh,
    RankIndex,
    WeightPart,
)

_STARTS = {"embedding": ("vocab_start", 1), "experts": ("expert_start", 3)}
"""Ops that count from the first row of a weight: the attribute that says so, and which input."""


def localize(draft: Draft) -> Draft:
    """Local types everywhere, then linears of one input packed into one."""
    mesh, local_types = draft.mesh, _LocalTypes(draft.mesh)
    local = replace(
        draft,
        kv_cache=local_cache(draft),
        weights={name: _local_weight(mesh, w) for name, w in draft.weights.items()},
        programs=tuple(_local_program(mesh, local_types, program) for program in draft.programs),
    )
    return pack(local)


def _local_program(mesh: Mesh, local: _LocalTypes, program: DraftProgram) -> DraftProgram:
    values = {name: v.of_type(local.of(v)) for name, v in program.values.items()}
    nodes = tuple(_local_node(mesh, node, program) for node in program.nodes)
    return replace(program, values=values, nodes=nodes)


class _LocalTypes:
    """Types of one rank, each made once: most values have the same few, as the same objects."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._known: dict[tuple[int, int], tuple[TensorType, DraftValue]] = {}
        self._first: dict[TensorType, TensorType] = {}

    def of(self, value: DraftValue) -> TensorType:
        """One rank's type of a value whose type is global."""
        key = id(value.type), id(value.placements)
        known = self._known.get(key)
        if known is None:
            type_, placed = value.type, value.placements
            if sharded_dims(placed):
                type_ = TensorType(type_.dtype, local_shape(self._mesh, type_.shape, placed))
            known = self._known[key] = self._first.setdefault(type_, type_), value
        return known[0]


def _local_node(mesh: Mesh, node: Node, program: DraftProgram) -> Node:
    """An op's part of the vocabulary, or of the experts, begins where this rank's weight does."""
    if node.op not in _STARTS:
        return node
    attribute, position = _STARTS[node.op]
    weight = program.values[node.inputs[position] or ""]
    axes = axes_with(mesh, weight.placements, Shard(0))
    if not axes:
        return node
    rows = local_shape(mesh, weight.type.shape, weight.placements)[0]
    start: dict[str, Attribute] = {attribute: RankIndex(axes, rows)}
    return replace(node, attributes={**node.attributes, **start})


def _local_weight(mesh: Mesh, weight: DraftWeight) -> DraftWeight:
    if not sharded_dims(weight.placements):
        return weight
    shape = local_shape(mesh, weight.type.shape, weight.placements)
    parts = tuple(_local_part(mesh, weight, part) for part in weight.parts)
    return replace(weight, type=replace(weight.type, shape=shape), parts=parts)


def _local_part(mesh: Mesh, weight: DraftWeight, part: WeightPart) -> WeightPart:
    """The stack's numbers cut as dim 0 of the weight is, each tensor as its further dims are."""
    stacked = 0
    if part.stack is not None:
        stacked, over = 1, axes_with(mesh, weight.placements, Shard(0))
        part = replace(part, stack=replace(part.stack, axes=over))
    dims = [dim - stacked for dim in sharded_dims(weight.placements) if dim >= stacked]
    if len(dims) > 1:
        raise UnsupportedLayoutError(
            f"weight {weight.name} is cut in two dims: {label(mesh, weight.placements)}",
            remedy="annotate it over groups that cut one dim only",
            where=weight.name,
        )
    for dim in dims:
        axes = axes_with(mesh, weight.placements, Shard(dim + stacked))
        part = replace(part, dim=dim, axes=axes, padded=part.padded or part.shape[dim])
    return part


def local_cache(draft: Draft) -> KvCache:
    """KV heads of one rank, as the caches of the first program are placed."""
    groups = tuple(_local_group(draft, group) for group in draft.kv_cache.groups)
    return replace(draft.kv_cache, groups=groups)


def _local_group(draft: Draft, group: CacheGroup) -> CacheGroup:
    for value in draft.programs[0].values.values():
        if isinstance(value.storage, CacheStorage) and value.storage.group == group.name:
            axes = axes_with(draft.mesh, value.placements, Shard(2))
            return replace(group, kv_heads=group.kv_heads // draft.mesh.size(axes), axes=axes)
    raise AssertionError(f"no program touches cache group {group.name}")
