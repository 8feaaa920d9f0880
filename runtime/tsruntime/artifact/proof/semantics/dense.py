"""What linear layers and embeddings do to tiles and sums."""

from __future__ import annotations

from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import EVERYTHING, contracted, summed
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import Overlap, Runs, clipped, multiplied, shown
from tsruntime.artifact.proof.semantics.base import (
    Attributes,
    Inputs,
    complete,
    equal,
    indices,
    integer,
    integers,
    one,
    present,
)
from tsruntime.artifact.proof.tile import Local, Piece, local
from tsruntime.artifact.proof.traced import Match


def linear(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Rows of the weight become columns of the result; shared columns are summed over."""
    x, weight = present(inputs[0]).only, present(inputs[1])
    biases = [None] * len(weight.pieces) if inputs[2] is None else list(inputs[2].pieces)
    if weight.dim != 0 or len(biases) != len(weight.pieces):
        raise Refusal("its weight and bias are packed differently")
    columns = [
        _column(traced, traced.find("linear", attributes, x, w, b), x, w, b)
        for w, b in zip(weight.pieces, biases, strict=True)
    ]
    return (local(1, columns),)


def scaled_linear(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """As `linear`; each rank scales its part of the weight by the scales of that part's blocks."""
    x, weight, scale = present(inputs[0]).only, present(inputs[1]), present(inputs[2])
    biases = [None] * len(weight.pieces) if inputs[3] is None else list(inputs[3].pieces)
    if (weight.dim, scale.dim) != (0, 0) or not (
        len(weight.pieces) == len(scale.pieces) == len(biases)
    ):
        raise Refusal("its weight, scales and bias are packed differently")
    rows = integers(attributes, "block")[0]
    if any(w.shape[0] % rows for w in weight.pieces[:-1]):
        raise Refusal(f"a packed weight begins within a block of {rows} rows")
    columns: list[Piece] = []
    for w, s, b in zip(weight.pieces, scale.pieces, biases, strict=True):
        match = traced.find("scaled_linear", attributes, x, w, s, b)
        x_tile, w_tile, s_tile, b_tile = match.tiles
        complete("scale", s)
        _scales_fit(traced, w, w_tile, s_tile, integers(attributes, "block"))
        columns.append(_column(traced, Match(match.outputs, (x_tile, w_tile, b_tile)), x, w, b))
    return (local(1, columns),)


def _scales_fit(
    traced: Lookup,
    weight: Piece,
    weight_tile: tuple[Runs, ...],
    scale_tile: tuple[Runs, ...],
    block: tuple[int, ...],
) -> None:
    """Refuse scales that are not those of the weight's blocks, in their order, all of them whole.

    A run of the weight may end within a block only where the weight ends.
    """
    for dim, size in enumerate(traced[weight.number].type.shape):
        blocks = clipped(multiplied(scale_tile[dim], block[dim]), size)
        equal(
            f"the indices of its weight and of its scales' blocks along dim {dim}",
            weight_tile[dim],
            blocks,
        )


def _column(traced: Lookup, match: Match, x: Piece, weight: Piece, bias: Piece | None) -> Piece:
    x_tile, weight_tile, bias_tile = match.tiles
    equal("the columns of its input and of its weight", x_tile[1], weight_tile[1])
    complete("weight", weight)
    size = traced[weight.number].type.shape[1]
    try:
        held = contracted(x.held, weight_tile[1], size)
    except Overlap as overlap:
        raise Refusal(f"it contracts over a column twice: {overlap}") from None
    if bias is not None:
        equal("the rows of its weight and of its bias", weight_tile[0], bias_tile[0])
        held = summed(held, bias.held)
    return Piece(match.outputs[0], (x_tile[0], weight_tile[0]), held)


def embedding(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """A sum over the vocabulary, each rank adding the rows that its ids find."""
    ids, weight = indices(traced, "token_ids", inputs[0]), present(inputs[1]).only
    complete("weight", weight)
    match = traced.find("embedding", attributes, ids, weight)
    rows, columns = match.tiles[1]
    start = integer(attributes, "vocab_start")
    if len(rows) != 1 or rows[0][0] != start:
        raise Refusal(f"its weight holds the rows {shown(rows)}, but vocab_start is {start}")
    held = contracted(EVERYTHING, rows, traced[weight.number].type.shape[0])
    return one(Piece(match.outputs[0], (match.tiles[0][0], columns), held))
