"""What each collective does to the tiles and sums of a group's ranks, in the group's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tskernels.schema import AttributeValue
from tsruntime.artifact.proof import held
from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.runs import Overlap
from tsruntime.artifact.proof.tile import Local, Piece, concatenated, cut, local

Attributes: TypeAlias = Mapping[str, AttributeValue]


def all_reduce(members: Sequence[Local], attributes: Attributes) -> tuple[Local, ...]:
    """The sum of all members, whole on each."""
    return (_reduced(members, attributes),) * len(members)


def all_gather(members: Sequence[Local], attributes: Attributes) -> tuple[Local, ...]:
    """All members' tensors, whole on each."""
    return (concatenated(members, _dim(members, attributes, "dim")),) * len(members)


def reduce_scatter(members: Sequence[Local], attributes: Attributes) -> tuple[Local, ...]:
    """The sum of all members, an equal part of it each."""
    total, dim = _reduced(members, attributes), _dim(members, attributes, "dim")
    return tuple(_part(total, dim, i, len(members)) for i in range(len(members)))


def all_to_all(members: Sequence[Local], attributes: Attributes) -> tuple[Local, ...]:
    """From every member the part that is its own."""
    split, concat = (_dim(members, attributes, name) for name in ("split_dim", "concat_dim"))
    count = len(members)
    return tuple(
        concatenated([_part(member, split, i, count) for member in members], concat)
        for i in range(count)
    )


def _dim(members: Sequence[Local], attributes: Attributes, name: str) -> int:
    dim = attributes[name]
    assert isinstance(dim, int)
    return dim % len(members[0].shape)


def _part(x: Local, dim: int, index: int, count: int) -> Local:
    size, left = divmod(x.shape[dim], count)
    if left:
        raise Refusal(f"{x.shape[dim]} entries of dim {dim} do not divide by {count} ranks")
    return cut(x, dim, index * size, size)


def _reduced(members: Sequence[Local], attributes: Attributes) -> Local:
    """The sum of the members, which must be the same tile of disjoint summands."""
    if attributes["reduce"] != "sum":
        raise Refusal(f"it reduces a sum by {attributes['reduce']!r}")
    first = members[0]
    for member in members[1:]:
        if (member.dim, len(member.pieces)) != (first.dim, len(first.pieces)):
            raise Refusal("its ranks hold tensors that are packed differently")
    pieces = [_joined(column) for column in zip(*(m.pieces for m in members), strict=True)]
    return local(first.dim, pieces)


def _joined(pieces: Sequence[Piece]) -> Piece:
    first = pieces[0]
    for position, piece in enumerate(pieces):
        if (piece.number, piece.tile) != (first.number, first.tile):
            raise Refusal(
                f"it adds different parts: coordinate {position} holds another value or another "
                "tile than coordinate 0"
            )
    try:
        return replace(first, held=held.joined([piece.held for piece in pieces]))
    except Overlap as overlap:
        raise Refusal(f"it adds something more than once: {overlap}") from None
