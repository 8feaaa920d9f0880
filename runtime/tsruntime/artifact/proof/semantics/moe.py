"""What routing and the experts do to tiles and sums."""

from __future__ import annotations

from collections.abc import Sequence

from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import (
    EVERYTHING,
    Held,
    Sent,
    contracted,
    described,
    summed,
)
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import Runs, shown
from tsruntime.artifact.proof.semantics.base import (
    Attributes,
    Inputs,
    complete,
    equal,
    indices,
    integer,
    present,
    whole_dim,
)
from tsruntime.artifact.proof.tile import Local, Piece, local


def route(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Each row by itself, over all experts."""
    logits, slots = present(inputs[0]).only, indices(traced, "slot_mapping", inputs[1])
    bias = None if inputs[2] is None else inputs[2].only
    match = traced.find("route", attributes, logits, slots, bias)
    complete("logits", logits)
    whole_dim(traced, "logits", logits, 1)
    equal("the rows of its logits and of its slots", match.tiles[0][0], match.tiles[1][0])
    if bias is not None:
        complete("bias", bias)
        whole_dim(traced, "bias", bias, 0)
    return tuple(_chosen(traced, number, match.tiles[0][0]) for number in match.outputs)


def _chosen(traced: Lookup, number: int, rows: Runs) -> Local:
    every = ((0, traced[number].type.shape[1]),)
    return Local(0, (Piece(number, (rows, every), EVERYTHING),))


def experts(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """A sum over the experts, and for each one over its width; a bias is one more summand.

    Rows may come in several pieces, as from an exchange, which sends each rank what its own experts
    want.
    """
    rows = [present(x).pieces for x in inputs[:3]]
    weights = [None if x is None else x.only for x in inputs[3:]]
    if any(len(pieces) != len(rows[0]) for pieces in rows) or present(inputs[0]).dim != 0:
        raise Refusal("its rows, ids and weights are packed differently")
    pieces = [
        _one_of_experts(traced, [*columns, *weights], attributes)
        for columns in zip(*rows, strict=True)
    ]
    return (local(0, pieces),)


def _one_of_experts(
    traced: Lookup, pieces: Sequence[Piece | None], attributes: Attributes
) -> Piece:
    x, ids, weights, gate, up, down = map(_given, pieces[:6])
    match = traced.find("experts", attributes, *pieces)
    mine = match.tiles[3][0]
    for name, rows in (("x", x), ("ids", ids), ("weights", weights)):
        _reaches(name, rows, mine)
        whole_dim(traced, name, rows, 1)
    equal("the rows of its input and of its ids", match.tiles[0][0], match.tiles[1][0])
    equal("the rows of its input and of its weights", match.tiles[0][0], match.tiles[2][0])
    whole_dim(traced, "gate", gate, 2)
    whole_dim(traced, "up", up, 2)
    whole_dim(traced, "down", down, 1)
    _match_weights(pieces, match.tiles)
    held = _held_experts(traced, gate, match.tiles[3], pieces[8], attributes)
    return Piece(match.outputs[0], match.tiles[0], held)


def _given(piece: Piece | None) -> Piece:
    if piece is None:
        raise Refusal("an input is missing")
    return piece


def _reaches(name: str, piece: Piece, mine: Runs) -> None:
    """Rows are whole, or those that were sent for (at least) these experts."""
    if isinstance(piece.held, Sent):
        inside = [any(a <= s and t <= b for a, b in piece.held.experts) for s, t in mine]
        if not all(inside):
            raise Refusal(f"its {name} is {described(piece.held)}, but its own are {shown(mine)}")
        return
    complete(name, piece)


_WEIGHTS = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")


def _match_weights(pieces: Sequence[Piece | None], tiles: Sequence[tuple[Runs, ...]]) -> None:
    """All of the same experts, and of the same part of their width."""
    mine, width = tiles[3][0], tiles[3][1]
    for name, piece, tile in zip(_WEIGHTS, pieces[3:], tiles[3:], strict=True):
        if piece is None:
            continue
        equal(f"the experts of its gate and of its {name}", mine, tile[0])
        if name == "down":
            equal("the width of its gate and of its down", width, tile[2])
        elif name != "down_bias":
            equal(f"the width of its gate and of its {name}", width, tile[1])
        if name != "down_bias":
            complete(name, piece)


def _held_experts(
    traced: Lookup,
    gate: Piece,
    tile: tuple[Runs, ...],
    bias: Piece | None,
    attributes: Attributes,
) -> Held:
    """What the sums of these experts hold: each its width's part, and what there is of its bias."""
    count, width, _ = traced[gate.number].type.shape
    mine, start = tile[0], integer(attributes, "expert_start")
    if len(mine) != 1 or mine[0][0] != start:
        raise Refusal(f"its weights are of the experts {shown(mine)}, but expert_start is {start}")
    one = contracted(EVERYTHING, tile[1], width)
    if bias is not None:
        whole_dim(traced, "down_bias", bias, 1)
        one = summed(one, bias.held)
    return contracted(one, mine, count)
