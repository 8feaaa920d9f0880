"""The invariants of plans in progress, each a generator of violations of one program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.graph import RESHARD, Node
from tscompile.ir.mesh import replicas_of
from tscompile.ir.placement import (
    Partial,
    Placement,
    Replicate,
    Shard,
    by_replica,
    label,
    undivided_dim,
)
from tscompile.ir.typing import infer_types
from tscompile.rules import RULES, OpTypes, Strategy
from tskernels.errors import TsError
from tskernels.ops import OPS
from tskernels.registry import REGISTRY
from tskernels.schema import OpKind
from tsruntime.artifact.schema import ArenaStorage, CacheStorage, WeightStorage, part_shape


def values_are_defined_once_and_before_use(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """Every input is bound or an earlier op's output, and no name is given twice."""
    produced = {name for node in program.nodes for name in node.outputs}
    known = {n for n, v in program.values.items() if v.is_bound and n not in produced}
    for node in program.nodes:
        for name in node.inputs:
            if name is not None and name not in known:
                yield f"{node.op} in {node.module} reads {name}, which is not defined yet"
        for name in node.outputs:
            if name in known:
                yield f"{name} is defined twice"
            if name not in program.values:
                yield f"{name} has no type"
            known.add(name)
    if program.output not in known:
        yield f"the output {program.output} is not defined"
    for name in program.values.keys() - known:
        yield f"{name} has a type, but nothing defines it"


def ops_are_known_with_all_attributes(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """Ops are in the closed table; attributes are just those of the schema."""
    for node in program.nodes:
        if node.op == RESHARD:
            continue
        if node.op not in OPS:
            yield f"{node.op} in {node.module} is no operator"
            continue
        schema = OPS[node.op].schema
        wanted = {attribute.name for attribute in schema.attributes}
        if wanted != set(node.attributes):
            yield (
                f"{node.op} of {node.outputs[0]} has attributes {sorted(node.attributes)}, "
                f"but takes {sorted(wanted)}"
            )
        if len(schema.inputs) != len(node.inputs):
            yield f"{node.op} of {node.outputs[0]} has {len(node.inputs)} inputs"


def caches_are_threaded(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A cache is read only in its newest version, so that no read can pass a write."""
    newest: dict[CacheStorage, str] = {}
    for node in program.nodes:
        for name in node.inputs:
            storage = program.values[name].storage if name is not None else None
            if name is None or not isinstance(storage, CacheStorage):
                continue
            if newest.setdefault(storage, name) != name:
                yield f"{node.op} in {node.module} reads {name}, an old version of its cache"
        for name in node.outputs:
            storage = program.values[name].storage
            if isinstance(storage, CacheStorage):
                newest[storage] = name


def weights_are_as_in_the_table(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A weight's value has the type and the placements of the plan's weight: one layout for all."""
    for name, value in program.values.items():
        if isinstance(value.storage, WeightStorage):
            weight = draft.weights.get(value.storage.weight)
            if weight is None:
                yield f"{name} is the weight {value.storage.weight}, which the plan lacks"
            elif (weight.type, weight.placements) != (value.type, value.placements):
                yield f"{name} differs from the plan's weight of that name"


def global_types_follow(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """Output types over all replicas are what the schema's shape function gives for one."""
    return _types_follow(program, replicas_of(draft.mesh))


def types_follow(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """One rank's output types are what the schema's shape function gives."""
    return _types_follow(program, 1)


def _types_follow(program: DraftProgram, replicas: int) -> Iterator[str]:
    for node in program.nodes:
        try:
            types = infer_types(node, program.values, replicas)
        except TsError as error:
            yield f"{node.op} of {node.outputs[0]}: {error.message}"
            continue
        for name, type_ in zip(node.outputs, types, strict=True):
            if program.values[name].type != type_:
                yield f"{name} has type {program.values[name].type}, but {node.op} gives {type_}"


def values_are_placed(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """Every value has a placement on every axis."""
    for value in program.values.values():
        if len(value.placements) != len(draft.mesh.axes):
            yield f"{value.name} has no placement"


def tiles_divide(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """The axes that shard a dim divide it."""
    for value in program.values.values():
        dim = undivided_dim(draft.mesh, value.type.shape, value.placements)
        if dim is not None:
            yield f"{value.name} {list(value.type.shape)} does not divide in dim {dim}"


def ops_follow_a_strategy(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """Along every axis, an op's placements are one of its rule's strategies."""
    known: dict[object, bool] = {}
    for node, axis in product(program.nodes, range(len(draft.mesh.axes))):
        if node.op not in RULES:
            continue
        inputs = tuple(None if i is None else program.values[i] for i in node.inputs)
        outputs = tuple(program.values[o] for o in node.outputs)
        placed, name = (_along(inputs, axis), _along(outputs, axis)), draft.mesh.axes[axis].name
        types = OpTypes(
            tuple(None if v is None else v.type for v in inputs),
            tuple(v.type for v in outputs),
            node.attributes,
        )
        key = (
            *(node.op, placed, name, types.inputs, types.outputs),
            tuple(node.attributes.items()),
        )
        if key not in known:
            rule = RULES[node.op]
            strategies = (*rule.along(types, draft.mesh, name), *rule.exchanges)
            known[key] = any(_matches(s, *placed) for s in strategies)
        if not known[key]:
            shown = ", ".join("-" if p is None else str(p) for p in placed[0])
            yield (
                f"{node.op} of {node.outputs[0]} takes ({shown}) and gives "
                f"{placed[1][0]} along axis {name}: no strategy does that"
            )


def _along(values: tuple[DraftValue | None, ...], axis: int) -> tuple[Placement | None, ...]:
    return tuple(None if v is None else v.placements[axis] for v in values)


def _matches(
    strategy: Strategy,
    inputs: tuple[Placement | None, ...],
    outputs: tuple[Placement | None, ...],
) -> bool:
    pairs = zip(strategy.inputs, inputs, strict=True)
    return strategy.outputs == outputs and all(p is None or p == s for s, p in pairs)


def output_is_whole(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """The logits are equal on every rank of an attention replica, each its own rows."""
    output = program.values[program.output]
    if output.placements != by_replica(draft.mesh):
        yield f"the output {output.name} is {label(draft.mesh, output.placements)}"


def nothing_is_left_to_lower(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """No reshard and no edge remains."""
    for node in program.nodes:
        if node.op == RESHARD:
            yield f"{node.outputs[0]} is still a reshard"
    if program.edges:
        yield f"the boundary of {program.edges[0].module} was never checked"


_EXCHANGES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def collectives_change_what_they_say(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A collective changes placements along its axes, all of them, and along no other."""
    for node in program.nodes:
        if node.op not in _EXCHANGES or node.inputs[0] is None:
            continue
        before = program.values[node.inputs[0]].placements
        after = program.values[node.outputs[0]].placements
        for axis, source, target in zip(draft.mesh.axes, before, after, strict=True):
            inside = axis.name in _axes(node)
            if (not inside and source != target) or (inside and not _does(node, source, target)):
                yield (
                    f"{node.op} of {node.outputs[0]} over {'+'.join(_axes(node))} takes axis "
                    f"{axis.name} from {source} to {target}"
                )
        if node.attributes["size"] != draft.mesh.size(_axes(node)):
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


def weights_are_made_of_their_parts(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A weight's rows are those of its parts' tiles together; its other dims are theirs.

    Programs share weights: it is asked once.
    """
    if program is not draft.programs[0]:
        return
    for weight in draft.weights.values():
        if weight.constant is not None:
            if weight.type.shape != (len(weight.constant),):
                yield f"constant {weight.name} has {len(weight.constant)} values"
            continue
        tiles = [part_shape(draft.mesh, part) for part in weight.parts]
        if len(tiles) > 1 and any(part.stack is not None for part in weight.parts):
            yield f"weight {weight.name} packs a stack with other parts"
        rows = sum(tile[0] for tile in tiles)
        if any((rows, *tile[1:]) != weight.type.shape for tile in tiles):
            yield f"weight {weight.name} {list(weight.type.shape)} is not its parts {tiles}"


def storage_is_disjoint(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """No op writes bytes of the arena that a later op still reads under another name."""
    last_use: dict[str, int] = {}
    for index, node in enumerate(program.nodes):
        last_use.update({name: index for name in (*node.inputs, *node.outputs) if name})
    last_use[program.output] = len(program.nodes)
    live: dict[str, tuple[int, int]] = {}
    for index, node in enumerate(program.nodes):
        live = {name: span for name, span in live.items() if last_use[name] >= index}
        view = OPS[node.op].schema.kind is OpKind.VIEW
        for name in node.outputs:
            value = program.values[name]
            if not isinstance(value.storage, ArenaStorage):
                if value.storage is None:
                    yield f"{name} has no storage"
                continue
            start, stop = _span(value, value.storage)
            if stop > program.arena_bytes:
                yield f"{name} ends at byte {stop} of an arena of {program.arena_bytes}"
            for other, (low, high) in live.items():
                if not view and start < high and low < stop:
                    yield f"{name} overwrites {other} while that is still read"
            live[name] = (start, stop)


def _span(value: DraftValue, storage: ArenaStorage) -> tuple[int, int]:
    """First byte, and the byte behind the last one, that the value touches."""
    reach = 1 + sum(
        (extent - 1) * stride
        for extent, stride in zip(value.type.shape, storage.strides, strict=True)
    )
    start = storage.offset_bytes
    return start, start + reach * value.type.dtype.itemsize


def views_alias_their_source(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A view's bytes lie inside those of what it views."""
    for node in program.nodes:
        if OPS[node.op].schema.kind is not OpKind.VIEW or node.inputs[0] is None:
            continue
        source = program.values[node.inputs[0]]
        for output in (program.values[name] for name in node.outputs):
            if not isinstance(source.storage, ArenaStorage) or not isinstance(
                output.storage, ArenaStorage
            ):
                yield f"the view {output.name} of {source.name} is not in the arena"
                continue
            (low, high), (start, stop) = (
                _span(source, source.storage),
                _span(output, output.storage),
            )
            if start < low or stop > high:
                yield f"the view {output.name} reaches outside {source.name}"


def pins_resolve(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """Every op has a registered kernel of its own kind; views have none."""
    for node in program.nodes:
        if OPS[node.op].schema.kind is OpKind.VIEW:
            if node.pin != "view":
                yield f"the view {node.outputs[0]} is pinned to {node.pin or 'nothing'}"
        elif REGISTRY.resolve(node.pin).op != node.op:
            yield f"{node.op} of {node.outputs[0]} is pinned to {node.pin or 'nothing'}"
