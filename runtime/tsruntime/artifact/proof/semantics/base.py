"""What the meanings of the ops share: their types, and the checks that each of them makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tskernels.schema import AttributeValue
from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import EVERYTHING, NOTHING, described
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import Runs, shown, whole
from tsruntime.artifact.proof.tile import Local, Piece

Attributes: TypeAlias = Mapping[str, AttributeValue]
Inputs: TypeAlias = Sequence[Local | None]
Semantics: TypeAlias = Callable[[Lookup, Inputs, Attributes], tuple[Local, ...]]
"""The traced program, one rank's inputs and resolved attributes, to that rank's outputs."""


def present(x: Local | None) -> Local:
    """An input that the op cannot do without."""
    if x is None:
        raise Refusal("an input is missing")
    return x


def one(piece: Piece) -> tuple[Local, ...]:
    """One output, a single piece."""
    return (Local(0, (piece,)),)


def complete(name: str, piece: Piece) -> None:
    """Refuse a piece that is not the whole of its sum."""
    if piece.held is not EVERYTHING:
        raise Refusal(f"its {name} is an unfinished sum: this rank holds {described(piece.held)}")


def equal(what: str, first: Runs, second: Runs) -> None:
    """Refuse indices that are not the same."""
    if first != second:
        raise Refusal(f"{what} differ: {shown(first)} against {shown(second)}")


def integers(attributes: Attributes, name: str) -> tuple[int, ...]:
    """A tuple of whole numbers."""
    value = attributes[name]
    assert isinstance(value, tuple)
    return tuple(entry for entry in value if isinstance(entry, int))


def integer(attributes: Attributes, name: str) -> int:
    """An attribute that is a number, resolved for this rank."""
    value = attributes[name]
    assert isinstance(value, int)
    return value


def replica(traced: Lookup, name: str, piece: Piece) -> int:
    """The replica whose rows (all of them, and no others) the piece holds."""
    size = traced[piece.number].type.shape[0]
    rows = piece.tile[0]
    if len(rows) == 1 and rows[0][1] - rows[0][0] == size and rows[0][0] % size == 0:
        return rows[0][0] // size
    raise Refusal(f"its {name} holds the rows {shown(rows)}, not all {size} of one replica")


def same_replica(traced: Lookup, **pieces: Piece) -> None:
    """Refuse pieces that are not all rows of one replica."""
    found = {name: replica(traced, name, piece) for name, piece in pieces.items()}
    if len(set(found.values())) > 1:
        raise Refusal(f"its inputs belong to different replicas: {found}")


def whole_dim(traced: Lookup, name: str, piece: Piece, dim: int) -> None:
    """Refuse a piece that holds only a part of a dim."""
    size = traced[piece.number].type.shape[dim]
    if piece.tile[dim] != whole(size):
        raise Refusal(f"its {name} holds {shown(piece.tile[dim])} of the {size} in dim {dim}")


def indices(traced: Lookup, name: str, x: Local | None) -> Piece:
    """An input of whole numbers (ids, slots, lengths): as it is, and whole but for its rows."""
    piece = present(x).only
    complete(name, piece)
    for dim in range(1, len(piece.tile)):
        whole_dim(traced, name, piece, dim)
    return piece


def pages(traced: Lookup, x: Local | None) -> Piece:
    """A cache [pages, planes, heads, page size, width]: whole but for its pages and heads."""
    piece = present(x).only
    complete("cache", piece)
    for dim in (1, 3, 4):
        whole_dim(traced, "cache", piece, dim)
    return piece


def alike(
    traced: Lookup, op: str, inputs: Inputs, attributes: Attributes
) -> list[tuple[Piece, Piece, Piece]]:
    """(output with nothing said of its sums, first, second) of each pair of pieces."""
    first, second = present(inputs[0]), present(inputs[1])
    if first.dim != second.dim or len(first.pieces) != len(second.pieces):
        raise Refusal("its inputs are packed differently")
    result: list[tuple[Piece, Piece, Piece]] = []
    for a, b in zip(first.pieces, second.pieces, strict=True):
        match = traced.find(op, attributes, a, b)
        for dim, (left, right) in enumerate(zip(*match.tiles, strict=True)):
            equal(f"the indices of its inputs along dim {dim}", left, right)
        result.append((Piece(match.outputs[0], match.tiles[0], NOTHING), a, b))
    return result
