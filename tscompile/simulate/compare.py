"""Comparing what the ranks hold with the unsharded values, tile by tile.

Which tile a buffer is comes from the checker's own derivation; a wrong one shows as a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from tsruntime.artifact.proof.held import EVERYTHING, Sent, joined
from tsruntime.artifact.proof.runs import Overlap, Runs, clipped, length
from tsruntime.artifact.proof.tile import Local, Piece
from tsruntime.artifact.proof.traced import Traced
from tsruntime.artifact.schema import Mesh


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a value of the plan is furthest from the unsharded one: max|a-b| / max|b|.

    `error` is infinite where one is finite and the other is not.
    """

    value: str
    rank: int
    error: float


class Comparison:
    """One program's tiles against one run of the unsharded program."""

    def __init__(
        self,
        mesh: Mesh,
        traced: Traced,
        tiles: Sequence[Mapping[str, Local]],
        reference: Sequence[Mapping[str, Tensor]],
    ) -> None:
        self._mesh, self._traced, self._tiles = mesh, traced, tiles
        self._reference = reference
        self._wholes: dict[int, Tensor] = {}
        self._subsets = [
            tuple(axis.name for axis in chosen)
            for count in range(len(mesh.axes) + 1)
            for chosen in combinations(mesh.axes, count)
        ]

    def value(self, name: str, buffers: Sequence[Tensor]) -> Difference:
        """The largest difference of a value over the ranks' buffers.

        What is exchanged with experts shows in what is made of it.
        Unfinished sums are finished over the fewest axes that finish them. Ranks that hold the
        same tile of a finished value must hold the same bits.
        """
        worst = Difference(name, 0, 0.0)
        locals_ = [tiles[name] for tiles in self._tiles]
        if _exchanged(locals_[0]):
            return worst
        seen: dict[Local, Tensor] = {}
        sums: dict[tuple[int, ...], Tensor] = {}
        for rank, (local, buffer) in enumerate(zip(locals_, buffers, strict=True)):
            if all(piece.held is EVERYTHING for piece in local.pieces):
                first = seen.setdefault(local, buffer)
                error = self._error(local, buffer) if first is buffer else _apart(first, buffer)
            elif (members := self._finishing(rank, locals_)) not in sums:
                sums[members] = torch.stack([buffers[member] for member in members]).sum(0)
                error = self._error(local, sums[members])
            else:
                continue
            if not error <= worst.error:
                worst = Difference(name, rank, error)
        return worst

    def _finishing(self, rank: int, locals_: Sequence[Local]) -> tuple[int, ...]:
        """The fewest ranks around `rank` whose parts are the whole sum; they hold the same tile."""
        for axes in self._subsets:
            members = self._mesh.members(rank, axes)
            if _completes([locals_[member] for member in members]):
                return tuple(members)
        raise AssertionError("the checker has let a sum through that no group finishes")

    def _error(self, local: Local, tensor: Tensor) -> float:
        start, worst = 0, 0.0
        for piece in local.pieces:
            size = piece.shape[local.dim]
            part = tensor.narrow(local.dim, start, size)
            worst = max(worst, _distance(part, self._expected(piece)))
            start += size
        return worst

    def _expected(self, piece: Piece) -> Tensor:
        whole = self._whole(piece.number)
        for dim, runs in enumerate(piece.tile):
            whole = _selected(whole, dim, runs)
        return whole

    def _whole(self, number: int) -> Tensor:
        """The traced value; of all replicas along dim 0 where each has its own."""
        if number not in self._wholes:
            known = self._traced[number]
            values = [values[known.name] for values in self._reference]
            self._wholes[number] = torch.cat(values) if known.spread else values[0]
        return self._wholes[number]


def _exchanged(local: Local) -> bool:
    """Rows sent to experts, blank in places; or summands of the same rows, one behind the other."""
    tiles = [(piece.number, piece.tile) for piece in local.pieces]
    sent = any(isinstance(piece.held, Sent) for piece in local.pieces)
    return sent or len(set(tiles)) < len(tiles)


def _completes(locals_: Sequence[Local]) -> bool:
    first = locals_[0]
    for position, piece in enumerate(first.pieces):
        column = [local.pieces[position] for local in locals_ if len(local.pieces) > position]
        if any((p.number, p.tile) != (piece.number, piece.tile) for p in column):
            return False
        try:
            if joined([p.held for p in column]) is not EVERYTHING:
                return False
        except Overlap:
            return False
    return True


def _selected(whole: Tensor, dim: int, runs: Runs) -> Tensor:
    """The global indices `runs` along `dim`; those beyond the end are padding: NaN, unknown."""
    size = whole.shape[dim]
    if runs == ((0, size),):
        return whole
    if len(runs) == 1 and runs[0][1] <= size:
        return whole.narrow(dim, runs[0][0], length(runs))
    inside = clipped(runs, size)
    indices = [i for start, stop in inside for i in range(start, stop)]
    picked = whole.index_select(dim, torch.tensor(indices, dtype=torch.int64))
    missing = length(runs) - len(indices)
    if not missing:
        return picked
    shape = list(picked.shape)
    shape[dim] = missing
    return torch.cat((picked, picked.new_full(shape, torch.nan)), dim)


def _distance(found: Tensor, expected: Tensor) -> float:
    """max|a-b| / max|b| where the expected value is a number; padding rows are NaN there."""
    if not expected.is_floating_point():
        return 0.0 if torch.equal(found, expected) else float("inf")
    known = ~expected.isnan()
    a, b = found[known], expected[known]
    if not len(b):
        return 0.0
    if not bool(a.isfinite().all()):
        return float("inf")
    scale = float(b.abs().max())
    return float((a - b).abs().max()) / scale if scale else float((a - b).abs().max())


def _apart(a: Tensor, b: Tensor) -> float:
    """No difference where the bits are equal, an infinite one where they are not."""
    return 0.0 if torch.equal(a.nan_to_num(nan=0.0), b.nan_to_num(nan=0.0)) else float("inf")
