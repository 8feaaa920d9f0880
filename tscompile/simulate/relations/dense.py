"""How the sizes of linear layers, embeddings and norms are related."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from tscompile.simulate.errors import CannotShrink
from tscompile.simulate.relations.base import Dim, Dims, Scope, alike, name_of
from tsruntime.artifact.proof.certificate import TracedOp


def linear(dims: Dims, names: Scope, op: TracedOp) -> None:
    """Contracts the weight's columns; gives a column for each of its rows."""
    x, weight, y = name_of(op, 0), name_of(op, 1), op.outputs[0]
    dims.same(names(x, 0), names(y, 0))
    dims.same(names(x, 1), names(weight, 1))
    dims.same(names(weight, 0), names(y, 1))
    if op.inputs[2] is not None:
        dims.same(names(op.inputs[2], 0), names(y, 1))


BLOCK: Final[tuple[Dim, Dim]] = (
    ("", "rows of a quantization block", 0),
    ("", "columns of a quantization block", 0),
)
"""Sizes of the blocks that share a scale, of all weights alike."""


def scaled_linear(dims: Dims, names: Scope, op: TracedOp) -> None:
    """As `linear`; each of the weight's dims is as many blocks as there are scales."""
    x, weight, scale = (name_of(op, i) for i in range(3))
    linear(dims, names, replace(op, inputs=(x, weight, op.inputs[3])))
    sizes = cast("tuple[int, int]", op.attributes["block"])
    for dim, (block, size) in enumerate(zip(BLOCK, sizes, strict=True)):
        if names.size(weight, dim) % size:
            raise CannotShrink(
                f"{weight} ends within a block of {size}",
                remedy="simulate without --shrink",
                where=op.module,
            )
        dims.unnamed[block] = size
        dims.products[names(weight, dim)] = (names(scale, dim), block)


def embedding(dims: Dims, names: Scope, op: TracedOp) -> None:
    """A row an id, the weight's columns."""
    dims.same(names(name_of(op, 0), 0), names(op.outputs[0], 0))
    dims.same(names(name_of(op, 1), 1), names(op.outputs[0], 1))


def rms_norm(dims: Dims, names: Scope, op: TracedOp) -> None:
    """As its input; the gain as wide as a row."""
    alike(1)(dims, names, op)
    dims.same(names(name_of(op, 1), 0), names(op.outputs[0], -1))
