"""What stands on either side of an exchange of tokens does to tiles and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import (
    EVERYTHING,
    Contracted,
    Held,
    Sent,
    described,
    joined,
)
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import Overlap, Runs, shown, whole
from tsruntime.artifact.proof.semantics.base import (
    Attributes,
    Inputs,
    complete,
    equal,
    integer,
    present,
    whole_dim,
)
from tsruntime.artifact.proof.tile import Local, Piece, cut, local


def dispatch(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """For each destination the rows, ids and weights that its experts want."""
    x, ids, weights = (present(i).only for i in inputs)
    for name, piece in (("x", x), ("ids", ids), ("weights", weights)):
        complete(name, piece)
        equal("the rows of its x and of its choices", x.tile[0], piece.tile[0])
    whole_dim(traced, "ids", ids, 1)
    whole_dim(traced, "weights", weights, 1)
    wanted = [Sent(experts) for experts in _destinations(attributes)]
    return tuple(
        local(0, [replace(piece, held=sent) for sent in wanted]) for piece in (x, ids, weights)
    )


def combine(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """The sum of the blocks, each of which holds what its destination's experts add."""
    y, ids = present(inputs[0]), present(inputs[1]).only
    complete("ids", ids)
    whole_dim(traced, "ids", ids, 1)
    size = y.shape[0] // integer(attributes, "ranks")
    blocks = [
        (cut(y, 0, index * size, size).only, experts)
        for index, experts in enumerate(_destinations(attributes))
    ]
    first = blocks[0][0]
    count = traced.experts(first, ids)
    equal("the rows of its blocks and of its ids", first.tile[0], ids.tile[0])
    for block, experts in blocks:
        if (block.number, block.tile) != (first.number, first.tile):
            raise Refusal("it adds different parts: its blocks are not of the same rows")
        _check_block(block, experts, count)
    return (Local(0, (replace(first, held=_sum([block.held for block, _ in blocks])),)),)


def _destinations(attributes: Attributes) -> list[Runs]:
    """The experts of each."""
    ranks, step, held, first = (
        integer(attributes, name) for name in ("ranks", "step", "held", "first")
    )
    return [((first + d * step, first + d * step + held),) for d in range(ranks)]


def _check_block(block: Piece, experts: Runs, count: int) -> None:
    """A block counts rows of these experts only: it must hold their summands and no others."""
    match block.held:
        case Contracted(size, ((_, runs),)) if runs == experts and size == count:
            return
        case held if held is EVERYTHING and experts == whole(count):
            return
        case held:
            raise Refusal(
                f"a block is of the experts {shown(experts)}, but holds {described(held)}"
            )


def _sum(parts: Sequence[Held]) -> Held:
    try:
        return joined(parts)
    except Overlap as overlap:
        raise Refusal(f"it adds something more than once: {overlap}") from None
