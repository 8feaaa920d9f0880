"""The invariants of single nodes and values: what holds of one holds of all that are alike.

Each is a generator of violations of a node with its values, or of a value, on a mesh.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tscompile.ir.alike import Applied
from tscompile.ir.draft import DraftValue
from tscompile.ir.graph import RESHARD, Node
from tscompile.ir.mesh import replicas_of
from tscompile.ir.placement import Partial, Placement, Replicate, Shard, undivided_dim
from tscompile.ir.typing import infer_types
from tscompile.rules import RULES, OpTypes, Strategy
from tskernels.errors import TsError
from tskernels.ops import OPS
from tskernels.registry import REGISTRY
from tskernels.schema import OpKind
from tsruntime.artifact.schema import Mesh


def ops_are_known_with_all_attributes(mesh: Mesh, one: Applied) -> Iterator[str]:
    """Ops are in the closed table; attributes are just those of the schema."""
    node = one.node
    if node.op == RESHARD:
        return
    if node.op not in OPS:
        yield f"{node.op} in {node.module} is no operator"
        return
    schema = OPS[node.op].schema
    wanted = {attribute.name for attribute in schema.attributes}
    if wanted != set(node.attributes):
        yield (
            f"{node.op} of {node.outputs[0]} has attributes {sorted(node.attributes)}, "
            f"but takes {sorted(wanted)}"
        )
    if len(schema.inputs) != len(node.inputs):
        yield f"{node.op} of {node.outputs[0]} has {len(node.inputs)} inputs"


def global_types_follow(mesh: Mesh, one: Applied) -> Iterator[str]:
    """Output types over all replicas are what the schema's shape function gives for one."""
    return _types_follow(one, replicas_of(mesh))


def types_follow(mesh: Mesh, one: Applied) -> Iterator[str]:
    """One rank's output types are what the schema's shape function gives."""
    return _types_follow(one, 1)


def _types_follow(one: Applied, replicas: int) -> Iterator[str]:
    node = one.node
    values = {value.name: value for value in one.inputs if value is not None}
    try:
        types = infer_types(node, values, replicas)
    except TsError as error:
        yield f"{node.op} of {node.outputs[0]}: {error.message}"
        return
    for value, type_ in zip(one.outputs, types, strict=True):
        if value.type != type_:
            yield f"{value.name} has type {value.type}, but {node.op} gives {type_}"


def values_are_placed(mesh: Mesh, value: DraftValue) -> Iterator[str]:
    """Every value has a placement on every axis."""
    if len(value.placements) != len(mesh.axes):
        yield f"{value.name} has no placement"


def tiles_divide(mesh: Mesh, value: DraftValue) -> Iterator[str]:
    """The axes that shard a dim divide it."""
    dim = undivided_dim(mesh, value.type.shape, value.placements)
    if dim is not None:
        yield f"{value.name} {list(value.type.shape)} does not divide in dim {dim}"


def ops_follow_a_strategy(mesh: Mesh, one: Applied) -> Iterator[str]:
    """Along every axis, an op's placements are one of its rule's strategies."""
    node = one.node
    if node.op not in RULES:
        return
    rule, types = RULES[node.op], _types(one)
    for index, axis in enumerate(mesh.axes):
        inputs, outputs = _along(one.inputs, index), _along(one.outputs, index)
        strategies = (*rule.along(types, mesh, axis.name), *rule.exchanges)
        if not any(_matches(s, inputs, outputs) for s in strategies):
            shown = ", ".join("-" if p is None else str(p) for p in inputs)
            yield (
                f"{node.op} of {node.outputs[0]} takes ({shown}) and gives "
                f"{outputs[0]} along axis {axis.name}: no strategy does that"
            )


def _types(one: Applied) -> OpTypes:
    return OpTypes(
        tuple(None if value is None else value.type for value in one.inputs),
        tuple(value.type for value in one.outputs),
        one.node.attributes,
    )


def _along(values: Sequence[DraftValue | None], axis: int) -> tuple[Placement | None, ...]:
    return tuple(None if v is None else v.placements[axis] for v in values)


def _matches(
    strategy: Strategy,
    inputs: tuple[Placement | None, ...],
    outputs: tuple[Placement | None, ...],
) -> bool:
    pairs = zip(strategy.inputs, inputs, strict=True)
    return strategy.outputs == outputs and all(p is None or p == s for s, p in pairs)


_EXCHANGES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def collectives_change_what_they_say(mesh: Mesh, one: Applied) -> Iterator[str]:
    """A collective changes placements along its axes, all of them, and along no other."""
    node = one.node
    if node.op not in _EXCHANGES or one.inputs[0] is None:
        return
    before, after = one.inputs[0].placements, one.outputs[0].placements
    for axis, source, target in zip(mesh.axes, before, after, strict=True):
        inside = axis.name in _axes(node)
        if (not inside and source != target) or (inside and not _does(node, source, target)):
            yield (
                f"{node.op} of {node.outputs[0]} over {'+'.join(_axes(node))} takes axis "
                f"{axis.name} from {source} to {target}"
            )
    if node.attributes["size"] != mesh.size(_axes(node)):
        yield f"{node.op} of {node.outputs[0]} has size {node.attributes['size']}"


def _axes(node: Node) -> tuple[str, ...]:
    axes = node.attributes["axes"]
    assert isinstance(axes, tuple)
    return tuple(str(axis) for axis in axes)


def _does(node: Node, source: Placement, target: Placement) -> bool:
    given = node.attributes
    match node.op:
        case "all_reduce":
            return source == Partial(str(given["reduce"])) and target == Replicate()
        case "reduce_scatter":
            return (source, target) == (Partial(str(given["reduce"])), Shard(_int(given["dim"])))
        case "all_gather":
            return (source, target) == (Shard(_int(given["dim"])), Replicate())
        case _:
            cut, joined = _int(given["split_dim"]), _int(given["concat_dim"])
            return (source, target) == (Shard(joined), Shard(cut))


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def pins_resolve(mesh: Mesh, one: Applied) -> Iterator[str]:
    """Every op has a registered kernel of its own kind; views have none."""
    node = one.node
    if OPS[node.op].schema.kind is OpKind.VIEW:
        if node.pin != "view":
            yield f"the view {node.outputs[0]} is pinned to {node.pin or 'nothing'}"
    elif REGISTRY.resolve(node.pin).op != node.op:
        yield f"{node.op} of {node.outputs[0]} is pinned to {node.pin or 'nothing'}"
