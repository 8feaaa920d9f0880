"""How the sizes of ops that only choose or regroup are related."""

from __future__ import annotations

from tscompile.simulate.relations.base import Dims, Scope, name_of
from tsruntime.artifact.proof.certificate import TracedOp


def select_rows(dims: Dims, names: Scope, op: TracedOp) -> None:
    """As many rows as are selected, columns as its input."""
    dims.same(names(name_of(op, 1), 0), names(op.outputs[0], 0))
    dims.same(names(name_of(op, 0), 1), names(op.outputs[0], 1))


def narrow(dims: Dims, names: Scope, op: TracedOp) -> None:
    """A range of one dim, the others as its input's."""
    x, y, narrowed = name_of(op, 0), op.outputs[0], op.attributes["dim"]
    for dim in range(names.rank(x)):
        (dims.link if dim == narrowed else dims.same)(names(x, dim), names(y, dim))


def unflatten(dims: Dims, names: Scope, op: TracedOp) -> None:
    """Columns are heads times their width."""
    x, y = name_of(op, 0), op.outputs[0]
    dims.same(names(x, 0), names(y, 0))
    dims.products[names(x, 1)] = (names(y, 1), names(y, 2))


def flatten(dims: Dims, names: Scope, op: TracedOp) -> None:
    """Heads times their width are columns."""
    x, y = name_of(op, 0), op.outputs[0]
    dims.same(names(x, 0), names(y, 0))
    dims.products[names(y, 1)] = (names(x, 1), names(x, 2))
