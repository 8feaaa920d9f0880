"""How the sizes of rotary embeddings, cache writes and attention are related."""

from __future__ import annotations

from tscompile.simulate.relations.base import Dims, Scope, alike, name_of
from tsruntime.artifact.proof.certificate import TracedOp


def rotary_table(dims: Dims, names: Scope, op: TracedOp) -> None:
    """A row a position; twice as wide as there are frequencies."""
    dims.same(names(name_of(op, 0), 0), names(op.outputs[0], 0))
    dims.halves[names(name_of(op, 1), 0)] = names(op.outputs[0], 1)


def rotary(dims: Dims, names: Scope, op: TracedOp) -> None:
    """As its input; a row of the table for each row."""
    alike(1)(dims, names, op)
    dims.same(names(name_of(op, 1), 0), names(op.outputs[0], 0))
    dims.same(names(name_of(op, 1), 1), names(op.outputs[0], 2))


def kv_write(dims: Dims, names: Scope, op: TracedOp) -> None:
    """Keys and values fit the pool's heads and width."""
    key, value, cache, slots = (name_of(op, i) for i in range(4))
    for source in (key, value):
        dims.same(names(source, 0), names(slots, 0))
        dims.same(names(source, 1), names(cache, 2))
        dims.same(names(source, 2), names(cache, 4))
    for dim in range(5):
        dims.same(names(cache, dim), names(op.outputs[0], dim))


def attention(dims: Dims, names: Scope, op: TracedOp) -> None:
    """As its query; query heads are a multiple of key heads."""
    alike(1)(dims, names, op)
    query, cache = name_of(op, 0), name_of(op, 1)
    dims.same(names(query, 2), names(cache, 4))
    dims.groups.append((names(query, 1), names(cache, 2)))
    if op.inputs[5] is not None:
        dims.same(names(op.inputs[5], 0), names(query, 1))
