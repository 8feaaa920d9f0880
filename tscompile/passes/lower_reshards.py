"""Lower every reshard to collectives over sets of axes, local slices and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.errors import UnsupportedLayoutError
from tscompile.ir.graph import RESHARD, Node
from tscompile.ir.placement import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    axes_with,
    label,
    local_shape,
)
from tskernels.schema import TensorType
from tsruntime.artifact.schema import Attribute, Mesh, RankIndex


@dataclass(frozen=True, slots=True)
class Step:
    """One collective or local op of a lowered reshard, and the placements after it."""

    op: str
    attributes: dict[str, Attribute]
    placements: Placements


def lower_reshards(draft: Draft) -> Draft:
    """Replace each reshard by the steps that `lower` gives."""
    return replace(draft, programs=tuple(_lowered(draft.mesh, p) for p in draft.programs))


def _lowered(mesh: Mesh, program: DraftProgram) -> DraftProgram:
    values = dict(program.values)
    nodes: list[Node] = []
    for node in program.nodes:
        if node.op == RESHARD:
            nodes.extend(_replacement(mesh, node, values))
        else:
            nodes.append(node)
    return replace(program, values=values, nodes=tuple(nodes))


def _replacement(mesh: Mesh, node: Node, values: dict[str, DraftValue]) -> list[Node]:
    assert node.inputs[0] is not None
    (result,), source = node.outputs, values[node.inputs[0]]
    steps = lower(mesh, source.type, source.placements, values[result].placements)
    nodes: list[Node] = []
    current = source.name
    for number, step in enumerate(steps, 1):
        name = result if number == len(steps) else f"{result}.{number}"
        values[name] = DraftValue(name, source.type, step.placements)
        nodes.append(Node(step.op, (current,), (name,), step.attributes, node.module))
        current = name
    return nodes


_ORDER = ("reduce_scatter", "slice", "all_to_all", "all_reduce", "mask", "all_gather")
"""What makes the value smaller comes first."""


def lower(
    mesh: Mesh, type_: TensorType, source: Placements, target: Placements
) -> tuple[Step, ...]:
    """Steps from `source` to `target` of a value of global type `type_`.

    Axes that change alike go in one step. Raises UnsupportedLayoutError for Shard to Partial, and
    where the axes that change are not the innermost digits of the dim that they cut.
    """
    changes = dict.fromkeys((s, t) for s, t in zip(source, target, strict=True) if s != t)
    ordered = sorted(changes, key=lambda change: _ORDER.index(_kind(*change)))
    steps: list[Step] = []
    current = source
    for before, after in ordered:
        changing = tuple(
            axis.name
            for axis, s, t in zip(mesh.axes, source, target, strict=True)
            if (s, t) == (before, after)
        )
        placements = tuple(
            after if axis.name in changing else placement
            for axis, placement in zip(mesh.axes, current, strict=True)
        )
        _check_digits(mesh, changing, current, placements)
        attributes = _attributes(mesh, type_, changing, before, after, placements)
        steps.append(Step(_kind(before, after), attributes, placements))
        current = placements
    return tuple(steps)


def _kind(source: Placement, target: Placement) -> str:
    match source, target:
        case Partial(), Replicate():
            return "all_reduce"
        case Partial(), Shard():
            return "reduce_scatter"
        case Shard(), Replicate():
            return "all_gather"
        case Shard(), Shard():
            return "all_to_all"
        case Replicate(), Shard():
            return "slice"
        case Replicate(), Partial():
            return "mask"
        case _:
            raise UnsupportedLayoutError(
                f"a reshard from {source} to {target} does not exist",
                remedy="this is a defect of a strategy's table; report it",
            )


def _attributes(
    mesh: Mesh,
    type_: TensorType,
    axes: tuple[str, ...],
    source: Placement,
    target: Placement,
    placements: Placements,
) -> dict[str, Attribute]:
    ranks = mesh.size(axes)
    group: dict[str, Attribute] = {"axes": axes, "size": ranks}
    match source, target:
        case Partial(reduce), Replicate():
            return {**group, "reduce": reduce}
        case Partial(reduce), Shard(dim):
            return {**group, "dim": dim, "reduce": reduce}
        case Shard(dim), Replicate():
            return {**group, "dim": dim}
        case Shard(old), Shard(new):
            return {**group, "split_dim": new, "concat_dim": old}
        case _, Shard(dim):
            size = local_shape(mesh, type_.shape, placements)[dim]
            return {"dim": dim, "start": RankIndex(axes, size), "size": size}
        case _:
            return {"coordinate": RankIndex(axes, 1)}


def _check_digits(
    mesh: Mesh, changing: Sequence[str], before: Placements, after: Placements
) -> None:
    """Tiles of a dim stay consecutive only if the axes that change are its innermost digits."""
    order = [axis.name for axis in mesh.axes]
    for placements in (before, after):
        for placement in dict.fromkeys(placements):
            axes = axes_with(mesh, placements, placement)
            moved = [order.index(a) for a in axes if a in changing]
            kept = [order.index(a) for a in axes if a not in changing]
            if isinstance(placement, Shard) and moved and kept and max(moved) > min(kept):
                raise UnsupportedLayoutError(
                    f"a reshard from {label(mesh, before) or 'Replicate'} to "
                    f"{label(mesh, after) or 'Replicate'} needs a permutation of tiles",
                    remedy="choose sizes whose groups are equal",
                )
