"""Mutations of what a step tells the ranks: ids, slots, lengths, block tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from proof.edits import added_value, program, values, with_input, with_ops, with_value
from proof.mutated_collectives import label

from tsruntime.artifact.schema import ArenaStorage, InputStorage, Op, Plan, RankIndex

Edits = Iterator[tuple[str, Plan]]


def masked(plan: Plan) -> Edits:
    """An input is zero on all ranks but those of coordinate 0 along an axis."""
    for axis in plan.mesh.axes:
        attributes = {"coordinate": RankIndex((axis.name,), 1)}
        for i, position, name in _read(plan):
            changed = added_value(plan, name, "told")
            op = Op("mask", "mask.torch", (name,), ("told",), attributes, "")
            site = f"{label(i, program(plan).ops[i])} {name} along {axis.name}"
            yield site, _through(changed, i, position, op)


def halved(plan: Plan) -> Edits:
    """The last half of an input's columns: a sequence's first pages are not its first."""
    for i, position, name in _read(plan):
        shape = values(plan)[name].shape
        if len(shape) > 1 and shape[1] > 1:
            half = (shape[0], shape[1] // 2, *shape[2:])
            attributes = {"dim": 1, "start": shape[1] - half[1], "size": half[1]}
            op = Op("slice", "slice.torch", (name,), ("told",), attributes, "")
            changed = _reshaped(added_value(plan, name, "told"), "told", half)
            site = f"{label(i, program(plan).ops[i])} {name}"
            yield site, _through(changed, i, position, op)


def _read(plan: Plan) -> Iterator[tuple[int, int, str]]:
    """(op, position, name) of every use of an input."""
    found = values(plan)
    for i, op in enumerate(program(plan).ops):
        for position, name in enumerate(op.inputs):
            if name is not None and isinstance(found[name].storage, InputStorage):
                yield i, position, name


def _through(plan: Plan, index: int, position: int, op: Op) -> Plan:
    """The op at `index` reads what `op`, put before it, makes of its input."""
    changed = with_input(plan, index, position, op.outputs[0])
    ops = list(program(changed).ops)
    return with_ops(changed, [*ops[:index], op, *ops[index:]])


def _reshaped(plan: Plan, name: str, shape: tuple[int, ...]) -> Plan:
    value = values(plan)[name]
    assert isinstance(value.storage, ArenaStorage)
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    storage = replace(value.storage, strides=strides)
    return with_value(plan, name, lambda v: replace(v, shape=shape, storage=storage))
