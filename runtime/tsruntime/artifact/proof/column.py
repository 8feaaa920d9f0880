"""One value on the ranks of a team, written so that layers which do the same share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tsruntime.artifact.proof.tile import Local, Piece


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What each rank of a team holds, the traced values in it counted 0, 1, … by appearance.

    Equal bodies are one object. `shape` is the local shape, None where ranks differ in it.
    """

    locals: tuple[Local, ...]
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Column:
    """A body, and which traced values its counts stand for."""

    numbers: tuple[int, ...]
    body: Body

    def at(self, position: int) -> Local:
        """What the team's rank at `position` holds, by the traced values' own numbers."""
        return _renumbered(self.body.locals[position], self.numbers)


class Bodies:
    """Keeps one object for each body."""

    def __init__(self) -> None:
        self._known: Final[dict[tuple[Local, ...], Body]] = {}

    def column(self, locals_: Sequence[Local]) -> Column:
        """What the ranks of a team hold, in their order, as a column."""
        counts: dict[int, int] = {}
        for value in locals_:
            for piece in value.pieces:
                counts.setdefault(piece.number, len(counts))
        key = tuple(_renumbered(value, counts) for value in locals_)
        if key not in self._known:
            shapes = {value.shape for value in key}
            self._known[key] = Body(key, shapes.pop() if len(shapes) == 1 else None)
        return Column(tuple(counts), self._known[key])


def _renumbered(value: Local, numbers: Sequence[int] | dict[int, int]) -> Local:
    pieces = [Piece(numbers[p.number], p.tile, p.held) for p in value.pieces]
    return Local(value.dim, tuple(pieces))
