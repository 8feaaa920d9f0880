"""A local tensor as the checker knows it: pieces of traced values, each with its index runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import Held
from tsruntime.artifact.proof.runs import Runs, joined, length, taken


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of the traced value `number`: global indices along each dim, and how much is summed."""

    number: int
    tile: tuple[Runs, ...]
    held: Held

    @property
    def shape(self) -> tuple[int, ...]:
        """Local extents."""
        return tuple(length(runs) for runs in self.tile)


@dataclass(frozen=True, slots=True)
class Local:
    """A local tensor: pieces concatenated along `dim` (0 where there is just one)."""

    dim: int
    pieces: tuple[Piece, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Local extents of the whole."""
        shape = list(self.pieces[0].shape)
        shape[self.dim] = sum(piece.shape[self.dim] for piece in self.pieces)
        return tuple(shape)

    @property
    def only(self) -> Piece:
        """The one piece; refused where several values are packed."""
        if len(self.pieces) != 1:
            raise Refusal("it takes one value, not several packed ones or parts summed unequally")
        return self.pieces[0]


def local(dim: int, pieces: Sequence[Piece]) -> Local:
    """The pieces one after another along `dim`, those that continue one another made one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and (both := _continued(merged[-1], piece, dim)) is not None:
            merged[-1] = both
        else:
            merged.append(piece)
    return Local(dim if len(merged) > 1 else 0, tuple(merged))


def _continued(first: Piece, second: Piece, dim: int) -> Piece | None:
    same = (first.number, first.held) == (second.number, second.held)
    if not same or _others(first, dim) != _others(second, dim):
        return None
    return with_runs(first, dim, joined([first.tile[dim], second.tile[dim]]))


def _others(piece: Piece, dim: int) -> tuple[Runs, ...]:
    return (*piece.tile[:dim], *piece.tile[dim + 1 :])


def with_runs(piece: Piece, dim: int, runs: Runs) -> Piece:
    """The piece with other indices along `dim`."""
    tile = (*piece.tile[:dim], runs, *piece.tile[dim + 1 :])
    return Piece(piece.number, tile, piece.held)


def cut(x: Local, dim: int, start: int, size: int) -> Local:
    """Local indices `start` to `start + size - 1` along `dim`."""
    if not 0 <= start <= start + size <= x.shape[dim]:
        raise Refusal(f"entries {start} to {start + size} lie outside {x.shape[dim]} of dim {dim}")
    if dim != x.dim and len(x.pieces) > 1:
        across = [with_runs(p, dim, taken(p.tile[dim], start, size)) for p in x.pieces]
        return local(x.dim, across)
    pieces: list[Piece] = []
    for piece in x.pieces:
        count = piece.shape[dim]
        low, high = max(start, 0), min(start + size, count)
        if low < high:
            pieces.append(with_runs(piece, dim, taken(piece.tile[dim], low, high - low)))
        start -= count
    return local(dim, pieces)


def concatenated(parts: Sequence[Local], dim: int) -> Local:
    """The parts one after another along `dim`."""
    packed = [part for part in parts if len(part.pieces) > 1 and part.dim != dim]
    if not packed:
        return local(dim, [piece for part in parts for piece in part.pieces])
    across = packed[0].dim
    columns = zip(*(_split_alike(part, packed[0]) for part in parts), strict=True)
    return local(across, [local(dim, column).only for column in columns])


def _split_alike(part: Local, model: Local) -> tuple[Piece, ...]:
    widths = [piece.shape[model.dim] for piece in part.pieces]
    if part.dim != model.dim or widths != [piece.shape[model.dim] for piece in model.pieces]:
        raise Refusal("it joins tensors that are packed differently")
    return part.pieces
