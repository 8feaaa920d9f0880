"""Mutations of weights, wiring, attributes, storage and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise

from proof.edits import (
    bypassed,
    mutated_inputs,
    ops_of,
    program,
    same_type,
    values,
    with_attributes,
    with_input,
    with_op,
    with_ops,
    with_program,
    with_storage,
    with_value,
    with_weight,
)
from proof.mutated_collectives import label, other_axes

from tskernels.ops import OPS
from tskernels.schema import DType
from tsruntime.artifact.schema import (
    ArenaStorage,
    CacheStorage,
    Plan,
    Stack,
    WeightPart,
    part_axes,
)

Edits = Iterator[tuple[str, Plan]]


def parts(plan: Plan, edit: Callable[[WeightPart], Iterator[tuple[str, WeightPart]]]) -> Edits:
    for weight in plan.weights:
        for number, part in enumerate(weight.parts):
            for what, new in edit(part):
                parts = (*weight.parts[:number], new, *weight.parts[number + 1 :])
                stored = tuple(dict.fromkeys((*weight.axes, *part_axes(new))))
                edited = replace(weight, parts=parts, axes=stored)
                yield f"{weight.name} part {number} {what}", with_weight(plan, edited)


def other_shard(plan: Plan) -> Edits:
    """Another rank's shard of a weight: over other axes of as many ranks, or other digits."""

    def edit(part: WeightPart) -> Iterator[tuple[str, WeightPart]]:
        for axes in (*other_axes(plan, part.axes), part.axes[::-1]):
            if part.axes != axes and plan.mesh.size(axes) == plan.mesh.size(part.axes):
                yield str(axes), replace(part, axes=axes)
        if part.stack is not None:
            yield from other_experts(part, part.stack)

    def other_experts(part: WeightPart, stack: Stack) -> Iterator[tuple[str, WeightPart]]:
        for axes in (*other_axes(plan, stack.axes), stack.axes[::-1]):
            if stack.axes != axes and plan.mesh.size(axes) == plan.mesh.size(stack.axes):
                yield f"stack {axes}", replace(part, stack=replace(stack, axes=axes))

    return parts(plan, edit)


def other_file(plan: Plan) -> Edits:
    """A weight stored for fewer coordinates than it is cut over."""
    for weight in plan.weights:
        for axis in weight.axes:
            axes = tuple(a for a in weight.axes if a != axis)
            yield f"{weight.name} {axes}", with_weight(plan, replace(weight, axes=axes))


def other_tensor(plan: Plan) -> Edits:
    """Another layer's weight, or another one of the same shape."""
    shapes = {part.tensor: part.shape for weight in plan.weights for part in weight.parts}

    def edit(part: WeightPart) -> Iterator[tuple[str, WeightPart]]:
        for tensor, shape in shapes.items():
            if tensor != part.tensor and shape == part.shape:
                yield tensor, replace(part, tensor=tensor)

    return parts(plan, edit)


def other_dim(plan: Plan) -> Edits:
    """A square weight cut the other way."""

    def edit(part: WeightPart) -> Iterator[tuple[str, WeightPart]]:
        if part.dim is not None and len(set(part.shape)) == 1 and len(part.shape) == 2:
            yield "dim", replace(part, dim=1 - part.dim)

    return parts(plan, edit)


def parts_swapped(plan: Plan) -> Edits:
    for weight in plan.weights:
        for i in range(len(weight.parts) - 1):
            parts = list(weight.parts)
            parts[i], parts[i + 1] = parts[i + 1], parts[i]
            yield f"{weight.name} {i}", with_weight(plan, replace(weight, parts=tuple(parts)))


def rewired(plan: Plan) -> Edits:
    """An op reads another value of the same type that is there already: the old residual, say."""
    found = values(plan)
    made: list[str] = [v.name for v in found.values() if not isinstance(v.storage, ArenaStorage)]
    for i, op in enumerate(program(plan).ops):
        for position, name in enumerate(op.inputs):
            for other in made:
                if name and other != name and same_type(found[other], found[name]):
                    yield f"{label(i, op)} {name} to {other}", with_input(plan, i, position, other)
        made += op.outputs


def operands_swapped(plan: Plan) -> Edits:
    """Gate and up, key and value, q and k after the split."""
    found = values(plan)
    for i, op in enumerate(program(plan).ops):
        if op.op != "add":
            for a, b in combinations(range(len(op.inputs)), 2):
                x, y = op.inputs[a], op.inputs[b]
                if x and y and same_type(found[x], found[y]):
                    yield label(i, op), with_input(with_input(plan, i, a, y), i, b, x)
        for a, b in combinations(range(len(op.outputs)), 2):
            outputs = list(op.outputs)
            outputs[a], outputs[b] = outputs[b], outputs[a]
            if same_type(found[outputs[a]], found[outputs[b]]):
                edited = with_op(plan, i, replace(op, outputs=tuple(outputs)))
                yield f"{label(i, op)} outputs", edited


_OPTIONAL = {
    name: tuple(i for i, argument in enumerate(op.schema.inputs) if argument.optional)
    for name, op in OPS.items()
}
"""By op the positions of inputs that it may do without: biases, residuals, sinks."""


def operand_dropped(plan: Plan) -> Edits:
    """An addition skipped, a bias left out, a step of a chain left out."""
    found = values(plan)
    for i, op in enumerate(program(plan).ops):
        for position in _OPTIONAL.get(op.op, ()):
            if op.inputs[position] is not None:
                yield f"{label(i, op)} bias {position}", with_input(plan, i, position, None)
        for position, name in enumerate(op.inputs):
            if (
                name
                and len(op.outputs) == 1
                and op.op not in ("all_reduce", "mask", "kv_write", "latent_write")
                and same_type(found[name], found[op.outputs[0]])
            ):
                yield f"{label(i, op)} {position}", bypassed(plan, i, position)


def reattributed(plan: Plan) -> Edits:
    """Another eps, scale, window or range."""
    for i, op in enumerate(program(plan).ops):
        for name, value in op.attributes.items():
            if name in ("eps", "scale") and isinstance(value, float):
                yield f"{label(i, op)} {name}", with_attributes(plan, i, **{name: value * 2})
            if name == "window":
                yield f"{label(i, op)} window", with_attributes(plan, i, window=1)
            if name in ("top_k", "limit", "alpha") and isinstance(value, int | float):
                yield f"{label(i, op)} {name}", with_attributes(plan, i, **{name: value + 1})
            if name in ("normalize", "interleaved"):
                yield f"{label(i, op)} {name}", with_attributes(plan, i, **{name: not value})
            if name == "start" and value == 0:
                yield f"{label(i, op)} start", with_attributes(plan, i, start=1)


def ops_exchanged(plan: Plan) -> Edits:
    """Two neighbouring ops change places."""
    ops = program(plan).ops
    for i in range(len(ops) - 1):
        yield label(i, ops[i]), with_ops(plan, [*ops[:i], ops[i + 1], ops[i], *ops[i + 2 :]])


def other_cache(plan: Plan) -> Edits:
    """Another layer's pool; heads of other ranks; the pool before it is written."""
    for value in program(plan).values:
        storage = value.storage
        if isinstance(storage, CacheStorage):
            group = next(g for g in plan.kv_cache.groups if g.name == storage.group)
            for layer in group.layers:
                if layer != storage.layer:
                    edited = with_storage(plan, value.name, replace(storage, layer=layer))
                    yield f"{value.name} {layer}", edited
    for group in plan.kv_cache.groups:
        for axes in (*other_axes(plan, group.axes), group.axes[::-1]):
            if axes != group.axes and plan.mesh.size(axes) == plan.mesh.size(group.axes):
                groups = tuple(
                    replace(g, axes=axes) if g is group else g for g in plan.kv_cache.groups
                )
                cache = replace(plan.kv_cache, groups=groups)
                yield f"group {group.name} {axes}", replace(plan, kv_cache=cache)
    before = {k: v for op in program(plan).ops for k, v in mutated_inputs(op).items()}
    for i, op in ops_of(plan, "attention", "mla"):
        for position, name in enumerate(op.inputs):
            if name in before:
                yield f"{label(i, op)} early", with_input(plan, i, position, before[name])


def moved_bytes(plan: Plan) -> Edits:
    """A value placed over another one."""
    arena = [v for v in program(plan).values if isinstance(v.storage, ArenaStorage)]
    for value, other in pairwise(arena):
        assert isinstance(value.storage, ArenaStorage)
        assert isinstance(other.storage, ArenaStorage)
        moved = replace(other.storage, offset_bytes=value.storage.offset_bytes)
        yield f"{other.name} over {value.name}", with_storage(plan, other.name, moved)


def restrided(plan: Plan) -> Edits:
    """A view, or a result, read with other strides or from one element further on."""
    for value in program(plan).values:
        storage = value.storage
        if isinstance(storage, ArenaStorage) and value.shape[0] > 1:
            later = replace(storage, offset_bytes=storage.offset_bytes + value.dtype.itemsize)
            yield f"{value.name} later", with_storage(plan, value.name, later)
            flat = replace(storage, strides=(value.shape[-1], *storage.strides[1:]))
            if flat != storage:
                yield f"{value.name} strides", with_storage(plan, value.name, flat)


def other_output(plan: Plan) -> Edits:
    found, output = values(plan), program(plan).output
    for name, value in found.items():
        if name != output and same_type(value, found[output]):
            yield name, with_program(plan, replace(program(plan), output=name))


def narrower(plan: Plan) -> Edits:
    """Everything that floats in float32, on all ranks alike."""

    def narrow(dtype: DType) -> DType:
        return DType.FLOAT32 if dtype is DType.FLOAT64 else dtype

    found = program(plan)
    edited = replace(found, values=tuple(replace(v, dtype=narrow(v.dtype)) for v in found.values))
    groups = tuple(replace(g, dtype=narrow(g.dtype)) for g in plan.kv_cache.groups)
    yield (
        "all",
        replace(
            with_program(plan, edited),
            dtype=DType.FLOAT32,
            weights=tuple(replace(w, dtype=narrow(w.dtype)) for w in plan.weights),
            kv_cache=replace(plan.kv_cache, groups=groups),
        ),
    )


def other_constant(plan: Plan) -> Edits:
    for weight in plan.weights:
        if weight.constant is not None:
            values_ = (weight.constant[0], 2 * weight.constant[1], *weight.constant[2:])
            yield weight.name, with_weight(plan, replace(weight, constant=values_))


def relabelled(plan: Plan) -> Edits:
    """A placement label that lies: nothing trusts it."""
    for value in program(plan).values:
        edited = with_value(plan, value.name, lambda v: replace(v, placement="Shard(0)@a"))
        yield value.name, edited
