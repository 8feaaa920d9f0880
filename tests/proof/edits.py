"""Small edits of a plan's first program, from which mutations are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from tskernels.ops import OPS
from tskernels.schema import OpKind
from tsruntime.artifact.schema import (
    ArenaStorage,
    Attribute,
    Op,
    Plan,
    Program,
    Storage,
    Value,
    Weight,
)

PLAIN = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives that do nothing else."""


def program(plan: Plan) -> Program:
    """The program that is edited."""
    return plan.programs[0]


def values(plan: Plan) -> dict[str, Value]:
    """Its values by name."""
    return {value.name: value for value in program(plan).values}


def same_type(a: Value, b: Value) -> bool:
    """Whether one may stand where the other does."""
    return (a.dtype, a.shape) == (b.dtype, b.shape)


def with_program(plan: Plan, edited: Program) -> Plan:
    return replace(plan, programs=(edited, *plan.programs[1:]))


def with_ops(plan: Plan, ops: Iterator[Op] | list[Op]) -> Plan:
    return with_program(plan, replace(program(plan), ops=tuple(ops)))


def with_op(plan: Plan, index: int, op: Op | None) -> Plan:
    """Another op at `index`, or none."""
    ops = list(program(plan).ops)
    ops[index : index + 1] = [] if op is None else [op]
    return with_ops(plan, ops)


def with_attributes(plan: Plan, index: int, **changes: Attribute) -> Plan:
    op = program(plan).ops[index]
    return with_op(plan, index, replace(op, attributes={**op.attributes, **changes}))


def with_input(plan: Plan, index: int, position: int, name: str | None) -> Plan:
    op = program(plan).ops[index]
    inputs = tuple(name if i == position else x for i, x in enumerate(op.inputs))
    return with_op(plan, index, replace(op, inputs=inputs))


def with_value(plan: Plan, name: str, edit: Callable[[Value], Value]) -> Plan:
    found = program(plan)
    edited = tuple(edit(v) if v.name == name else v for v in found.values)
    return with_program(plan, replace(found, values=edited))


def with_storage(plan: Plan, name: str, storage: Storage) -> Plan:
    return with_value(plan, name, lambda value: replace(value, storage=storage))


def with_weight(plan: Plan, edited: Weight) -> Plan:
    weights = tuple(edited if w.name == edited.name else w for w in plan.weights)
    return replace(plan, weights=weights)


def bypassed(plan: Plan, index: int, position: int = 0) -> Plan:
    """Without the op at `index`: what read its output reads its input instead."""
    found = program(plan)
    gone, kept = found.ops[index].outputs[0], found.ops[index].inputs[position]
    ops = [
        replace(op, inputs=tuple(kept if i == gone else i for i in op.inputs))
        for i, op in enumerate(found.ops)
        if i != index
    ]
    output = found.output if found.output != gone else (kept or "")
    return with_program(plan, replace(found, ops=tuple(ops), output=output))


def added_value(plan: Plan, like: str, name: str) -> Plan:
    """One more value of `like`'s type, in bytes of its own."""
    found, value = program(plan), values(plan)[like]
    shape, end = value.shape, found.arena_bytes
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    new = replace(value, name=name, storage=ArenaStorage(end, strides))
    size = math.prod(shape) * value.dtype.itemsize
    return with_program(plan, replace(found, values=(*found.values, new), arena_bytes=end + size))


def collectives(plan: Plan) -> Iterator[tuple[int, Op]]:
    """Positions of the collectives, fused ones too."""
    return ((i, op) for i, op in enumerate(program(plan).ops) if is_collective(op))


def is_collective(op: Op) -> bool:
    """Whether it joins ranks."""
    return OPS[op.op].schema.kind is OpKind.COLLECTIVE


def mutated_inputs(op: Op) -> dict[str, str | None]:
    """By output the input whose memory it takes over: a cache before and after it is written."""
    taken = OPS[op.op].schema.mutates or {}
    return {op.outputs[after]: op.inputs[before] for after, before in taken.items()}


def ops_of(plan: Plan, *kinds: str) -> Iterator[tuple[int, Op]]:
    """Positions of the ops of these kinds."""
    return ((i, op) for i, op in enumerate(program(plan).ops) if op.op in kinds)
