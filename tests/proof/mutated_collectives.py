"""Mutations of what ranks exchange, mask and cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations

from proof.edits import (
    PLAIN,
    added_value,
    bypassed,
    collectives,
    is_collective,
    ops_of,
    program,
    same_type,
    values,
    with_attributes,
    with_input,
    with_op,
    with_ops,
    with_value,
)

from tskernels.schema import DType
from tsruntime.artifact.schema import (
    Op,
    Plan,
    RankIndex,
)

Edits = Iterator[tuple[str, Plan]]


def other_axes(plan: Plan, axes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    names = [axis.name for axis in plan.mesh.axes]
    for count in range(1, len(names) + 1):
        for chosen in combinations(names, count):
            if set(chosen) != set(axes):
                yield chosen


def _axes(op: Op) -> tuple[str, ...]:
    axes = op.attributes["axes"]
    assert isinstance(axes, tuple)
    return tuple(str(axis) for axis in axes)


def label(index: int, op: Op) -> str:
    return f"{index} {op.op} {op.module}"


def dropped(plan: Plan) -> Edits:
    """Left out; of a fused one what each rank would do alone is left."""
    for i, op in collectives(plan):
        if op.op in PLAIN:
            yield label(i, op), bypassed(plan, i)
        elif op.inputs[2] is not None:
            x, weight, residual = op.inputs[:3]
            eps = {"eps": op.attributes["eps"]}
            inputs = (x, residual, weight)
            alone = Op("add_rms_norm", "add_rms_norm.reference", inputs, op.outputs, eps, op.module)
            yield label(i, op), with_op(plan, i, alone)


def doubled(plan: Plan) -> Edits:
    """All-reduce what is already reduced, and gather or scatter a value again."""
    for i, op in collectives(plan):
        if op.op == "all_reduce":
            edited = added_value(plan, op.outputs[0], "again")
            again = replace(op, inputs=op.outputs, outputs=("again",))
            ops = [
                replace(o, inputs=tuple("again" if n == op.outputs[0] else n for n in o.inputs))
                for o in program(edited).ops[i + 1 :]
            ]
            yield label(i, op), with_ops(edited, [*program(edited).ops[: i + 1], again, *ops])


def inputs_swapped(plan: Plan) -> Edits:
    """Two collectives take each other's operand."""
    found = values(plan)
    for (i, a), (j, b) in combinations(collectives(plan), 2):
        x, y = a.inputs[0] or "", b.inputs[0] or ""
        if x != y and same_type(found[x], found[y]):
            yield f"{label(i, a)} and {j}", with_input(with_input(plan, i, 0, y), j, 0, x)


def swapped_order(plan: Plan) -> Edits:
    """Two neighbouring collectives change places on all ranks."""
    ops = program(plan).ops
    for i, op in collectives(plan):
        if i + 1 < len(ops) and is_collective(ops[i + 1]):
            yield label(i, op), with_ops(plan, [*ops[:i], ops[i + 1], op, *ops[i + 2 :]])


def retargeted(plan: Plan) -> Edits:
    """Other axes of as many ranks."""
    for i, op in collectives(plan):
        for axes in other_axes(plan, _axes(op)):
            if plan.mesh.size(axes) == op.attributes["size"]:
                yield f"{label(i, op)} {axes}", with_attributes(plan, i, axes=axes)


def widened(plan: Plan) -> Edits:
    """Other axes, whatever their number of ranks."""
    for i, op in collectives(plan):
        for axes in other_axes(plan, _axes(op)):
            size = plan.mesh.size(axes)
            if size != op.attributes["size"]:
                edited = with_attributes(plan, i, axes=axes, size=size)
                yield f"{label(i, op)} {axes}", edited


def resized(plan: Plan) -> Edits:
    for i, op in collectives(plan):
        for size in (1, 2, 3):
            if size != op.attributes["size"]:
                yield f"{label(i, op)} {size}", with_attributes(plan, i, size=size)


def reordered(plan: Plan) -> Edits:
    """The group's members in another order."""
    for i, op in collectives(plan):
        for axes in permutations(_axes(op)):
            if axes != _axes(op):
                yield f"{label(i, op)} {axes}", with_attributes(plan, i, axes=axes)


def redirected(plan: Plan) -> Edits:
    """Another dim."""
    for i, op in collectives(plan):
        if "dim" in op.attributes:
            yield label(i, op), with_attributes(plan, i, dim=1 - int(str(op.attributes["dim"])))


def rekinded(plan: Plan) -> Edits:
    """A reduction in place of a gather that changes no shape, and the like."""
    for i, op in collectives(plan):
        if op.op not in PLAIN:
            continue
        attributes = {k: v for k, v in op.attributes.items() if k in ("axes", "size")}
        for kind, more in (
            ("all_reduce", {"reduce": "sum"}),
            ("all_gather", {"dim": 0}),
            ("reduce_scatter", {"dim": 0, "reduce": "sum"}),
            ("all_to_all", {"split_dim": 0, "concat_dim": 0}),
            ("all_to_all", {"split_dim": 1, "concat_dim": 1}),
        ):
            if kind != op.op:
                new = Op(
                    kind,
                    f"{kind}.communicator",
                    op.inputs,
                    op.outputs,
                    {**attributes, **more},
                    op.module,
                )
                yield f"{label(i, op)} {kind} {more}", with_op(plan, i, new)


def retyped(plan: Plan) -> Edits:
    for i, op in collectives(plan):
        edited = with_value(plan, op.outputs[0], lambda v: replace(v, dtype=DType.FLOAT32))
        yield label(i, op), edited


def maximum(plan: Plan) -> Edits:
    for i, op in collectives(plan):
        if "reduce" in op.attributes:
            yield label(i, op), with_attributes(plan, i, reduce="max")


def mask_dropped(plan: Plan) -> Edits:
    for i, op in ops_of(plan, "mask"):
        yield label(i, op), bypassed(plan, i)


def mask_moved(plan: Plan) -> Edits:
    """Kept on other ranks: on all, on none, on those of other axes."""
    for i, op in ops_of(plan, "mask"):
        yield f"{label(i, op)} all", with_attributes(plan, i, coordinate=0)
        yield f"{label(i, op)} none", with_attributes(plan, i, coordinate=1)
        index = op.attributes["coordinate"]
        assert isinstance(index, RankIndex)
        for axes in other_axes(plan, index.axes):
            edited = with_attributes(plan, i, coordinate=RankIndex(axes, 1))
            yield f"{label(i, op)} {axes}", edited


def offset(plan: Plan) -> Edits:
    """Slices, vocabularies and experts that begin elsewhere."""
    names = {"slice": "start", "embedding": "vocab_start", "experts": "expert_start"}
    for i, op in ops_of(plan, *names):
        name = names[op.op]
        index = op.attributes[name]
        if isinstance(index, RankIndex):
            yield f"{label(i, op)} 0", with_attributes(plan, i, **{name: 0})
            less = RankIndex(index.axes, index.stride - 1)
            yield f"{label(i, op)} less", with_attributes(plan, i, **{name: less})
            for axes in (*other_axes(plan, index.axes), index.axes[::-1]):
                if axes != index.axes and plan.mesh.size(axes) <= plan.mesh.size(index.axes):
                    other = RankIndex(axes, index.stride)
                    yield f"{label(i, op)} {axes}", with_attributes(plan, i, **{name: other})
