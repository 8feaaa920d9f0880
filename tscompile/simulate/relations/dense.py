"""How the sizes of linear layers, embeddings and norms are related."""

from __future__ import annotations

from tscompile.simulate.relations.base import Dims, Scope, alike, name_of
from tsruntime.artifact.proof.certificate import TracedOp


def linear(dims: Dims, names: Scope, op: TracedOp) -> None:
    """Contracts the weight's columns; gives a column for each of its rows."""
    x, weight, y = name_of(op, 0), name_of(op, 1), op.outputs[0]
    dims.same(names(x, 0), names(y, 0))
    dims.same(names(x, 1), names(weight, 1))
    dims.same(names(weight, 0), names(y, 1))
    if op.inputs[2] is not None:
        dims.same(names(op.inputs[2], 0), names(y, 1))


def embedding(dims: Dims, names: Scope, op: TracedOp) -> None:
    """A row an id, the weight's columns."""
    dims.same(names(name_of(op, 0), 0), names(op.outputs[0], 0))
    dims.same(names(name_of(op, 1), 1), names(op.outputs[0], 1))


def rms_norm(dims: Dims, names: Scope, op: TracedOp) -> None:
    """As its input; the gain as wide as a row."""
    alike(1)(dims, names, op)
    dims.same(names(name_of(op, 1), 0), names(op.outputs[0], -1))
