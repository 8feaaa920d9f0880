"""What ops that only choose, cut or regroup do to tiles and sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import NOTHING
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import divided, multiplied, shown, whole
from tsruntime.artifact.proof.semantics.base import (
    Attributes,
    Inputs,
    equal,
    indices,
    integer,
    integers,
    one,
    present,
    same_replica,
)
from tsruntime.artifact.proof.tile import Local, Piece, concatenated, cut, local


def select_rows(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Rows are counted in their own replica's; selecting is linear, so sums may be unfinished."""
    x, rows = present(inputs[0]).only, indices(traced, "rows", inputs[1])
    match = traced.find("select_rows", attributes, x, rows)
    same_replica(traced, x=x, rows=rows)
    return one(Piece(match.outputs[0], (rows.tile[0], match.tiles[0][1]), x.held))


def mask(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Kept on coordinate 0, zero elsewhere."""
    x = present(inputs[0])
    if integer(attributes, "coordinate") == 0:
        return (x,)
    return (local(x.dim, [replace(piece, held=NOTHING) for piece in x.pieces]),)


def subrange(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """A consecutive range of a dim: `slice` and `narrow`."""
    x = present(inputs[0])
    dim, start, size = (integer(attributes, name) for name in ("dim", "start", "size"))
    return (cut(x, dim % len(x.shape), start, size),)


def permute(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Blocks of a dim, viewed as `sizes`, in another order: cut apart and put together again."""
    x, dim = present(inputs[0]), integer(attributes, "dim") % len(present(inputs[0]).shape)
    sizes, order = (integers(attributes, name) for name in ("sizes", "order"))
    if prod(sizes) != x.shape[dim] or sorted(order) != list(range(len(sizes))):
        raise Refusal(f"blocks of {sizes} in the order {order} are not its dim {dim}")
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    kept = len(order)
    while kept and order[kept - 1] == kept - 1:  # what stays innermost moves as one block
        kept -= 1
    starts = (
        sum(digit * strides[i] for digit, i in zip(digits, order, strict=False))
        for digits in product(*(range(sizes[i]) for i in order[:kept]))
    )
    block = prod(sizes[kept:])
    return (concatenated([cut(x, dim, start, block) for start in starts], dim),)


def split(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Consecutive ranges of the last dim."""
    x, sizes = present(inputs[0]), attributes["sizes"]
    assert isinstance(sizes, tuple)
    dim, parts, start = len(x.shape) - 1, list[Local](), 0
    for size in sizes:
        assert isinstance(size, int)
        parts.append(cut(x, dim, start, size))
        start += size
    return tuple(parts)


def unflatten(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Columns become whole heads."""
    x, size = present(inputs[0]), integer(attributes, "size")
    pieces: list[Piece] = []
    for piece in x.pieces:
        match = traced.find("unflatten", attributes, piece)
        rows, columns = match.tiles[0]
        heads = divided(columns, size)
        if heads is None:
            raise Refusal(f"its columns {shown(columns)} cut a head of {size}")
        pieces.append(Piece(match.outputs[0], (rows, heads, whole(size)), piece.held))
    return (local(x.dim, pieces),)


def flatten(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Heads, which must be whole, become columns."""
    x = present(inputs[0])
    pieces: list[Piece] = []
    for piece in x.pieces:
        match = traced.find("flatten", attributes, piece)
        rows, heads, width = match.tiles[0]
        size = traced[piece.number].type.shape[2]
        equal("its heads and the whole of one", width, whole(size))
        pieces.append(Piece(match.outputs[0], (rows, multiplied(heads, size)), piece.held))
    return (local(x.dim, pieces),)
