"""Lower every reshard to what runs: one collective, slice or mask, and the permutes beside it.

The search has already cut each reshard into single steps; here each becomes its ops.
"""

from __future__ import annotations

from dataclasses import replace

from tscompile.cost.model import Collective
from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.errors import UnsupportedLayoutError
from tscompile.ir.graph import GATHER_DIGITS, RESHARD, SCATTER_DIGITS, Node
from tscompile.ir.placement import Placements, label
from tscompile.search.layout import Digits, View, tile_shape
from tscompile.search.steps import (
    Action,
    Communicate,
    Mask,
    Permute,
    Slice,
    Step,
    actions,
    step_between,
)
from tsruntime.artifact.schema import Attribute, Mesh, RankIndex


def lower_reshards(draft: Draft) -> Draft:
    """Replace each reshard by the ops that run. Raises UnsupportedLayoutError for no single step.

    A reshard's attributes name the axes that may cut the dims that it scatters and gathers (see
    `View`): where those that move are not the outermost of those that a rank holds, blocks are put
    in order by a local permute.
    """
    return replace(draft, programs=tuple(_lowered(draft.mesh, p) for p in draft.programs))


def _lowered(mesh: Mesh, program: DraftProgram) -> DraftProgram:
    values = dict(program.values)
    nodes: list[Node] = []
    for node in program.nodes:
        nodes.extend(lower(mesh, node, values) if node.op == RESHARD else (node,))
    return replace(program, values=values, nodes=tuple(nodes))


def lower(mesh: Mesh, node: Node, values: dict[str, DraftValue]) -> list[Node]:
    """The ops that a reshard becomes; the values between them are added to `values`."""
    assert node.inputs[0] is not None
    (result,), source = node.outputs, values[node.inputs[0]]
    target = values[result].placements
    step = _step(mesh, node, source.placements, target)
    view = View(source.type.shape, _digits(node, step, len(source.type.shape)), 1)
    run = actions(mesh.axes, view, source.placements, step)
    nodes: list[Node] = []
    current, placed = source.name, source.placements
    for number, action in enumerate(run, 1):
        placed = placed if isinstance(action, Permute) else target
        name = result if number == len(run) else f"{result}.{number}"
        values[name] = replace(values[result], name=name, placements=placed)
        op, attributes = _op(mesh, action, tile_shape(mesh.axes, view.shape, target))
        nodes.append(Node(op, (current,), (name,), attributes, node.module, fused=node.fused))
        current = name
    return nodes


def _step(mesh: Mesh, node: Node, source: Placements, target: Placements) -> Step:
    """The single step between the placements before and after a reshard."""
    changes = {
        axis.name: (s, t) for axis, s, t in zip(mesh.axes, source, target, strict=True) if s != t
    }
    distinct = set(changes.values())
    step = step_between(tuple(changes), *distinct.pop()) if len(distinct) == 1 else None
    if step is None:
        raise UnsupportedLayoutError(
            f"no single collective takes {node.inputs[0]} from "
            f"{label(mesh, source) or 'Replicate'} to {label(mesh, target) or 'Replicate'}",
            remedy="this is a defect of the search or of an edited plan: report it",
            where=node.module,
        )
    return step


def _digits(node: Node, step: Step, rank: int) -> Digits:
    """The axes that may cut each dim, as far as the step needs to know them."""
    found: list[tuple[str, ...]] = [()] * rank
    for dim, name in ((step.scatter, SCATTER_DIGITS), (step.gather, GATHER_DIGITS)):
        axes = node.attributes.get(name, ())
        if dim is not None and isinstance(axes, tuple):
            found[dim] = tuple(str(axis) for axis in axes)
    return tuple(found)


def _op(mesh: Mesh, action: Action, tile: tuple[int, ...]) -> tuple[str, dict[str, Attribute]]:
    """Op and attributes of an action; `tile` is one rank's shape after it."""
    match action:
        case Permute(dim, sizes, order):
            return "permute", {"dim": dim, "sizes": sizes, "order": order}
        case Slice(dim, axes):
            size = tile[dim]
            return "slice", {"dim": dim, "start": RankIndex(axes, size), "size": size}
        case Mask(axes):
            return "mask", {"coordinate": RankIndex(axes, 1)}
        case Communicate():
            return action.kind.value, _collective(mesh, action)


def _collective(mesh: Mesh, action: Communicate) -> dict[str, Attribute]:
    given: dict[str, Attribute] = {"axes": action.axes, "size": mesh.size(action.axes)}
    scatter, gather = action.scatter or 0, action.gather or 0
    match action.kind:
        case Collective.ALL_REDUCE:
            return {**given, "reduce": "sum"}
        case Collective.REDUCE_SCATTER:
            return {**given, "dim": scatter, "reduce": "sum"}
        case Collective.ALL_GATHER:
            return {**given, "dim": gather}
        case Collective.ALL_TO_ALL:
            return {**given, "split_dim": scatter, "concat_dim": gather}
