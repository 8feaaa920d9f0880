"""Index runs: which global indices a local dim holds, in order, as half-open ranges."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TypeAlias

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges (start, stop) one after another: local index i holds the i-th global index in them."""


class Overlap(Exception):
    """Two sets of indices, or of summands, that should be disjoint share some."""


def whole(size: int) -> Runs:
    """All of 0 to size - 1, in order."""
    return ((0, size),) if size else ()


def length(runs: Runs) -> int:
    """How many indices there are."""
    if len(runs) == 1:
        return runs[0][1] - runs[0][0]
    return sum(stop - start for start, stop in runs)


def joined(parts: Iterable[Runs]) -> Runs:
    """The parts one after another, ranges that continue one another merged."""
    result: list[tuple[int, int]] = []
    for part in parts:
        for start, stop in part:
            if result and result[-1][1] == start:
                result[-1] = (result[-1][0], stop)
            elif start < stop:
                result.append((start, stop))
    return tuple(result)


def taken(runs: Runs, start: int, size: int) -> Runs:
    """The global indices of the local ones `start` to `start + size - 1`."""
    result: list[tuple[int, int]] = []
    for first, stop in runs:
        count = stop - first
        low, high = max(start, 0), min(start + size, count)
        if low < high:
            result.append((first + low, first + high))
        start -= count
    return joined([tuple(result)])


def shifted(runs: Runs, by: int) -> Runs:
    """Every index moved by `by`."""
    return tuple((start + by, stop + by) for start, stop in runs) if by else runs


def clipped(runs: Runs, size: int) -> Runs:
    """The indices below `size`: without padding."""
    return tuple((start, min(stop, size)) for start, stop in runs if start < size)


def union(sets: Iterable[Runs]) -> Runs:
    """All indices in rising order; Overlap if one occurs twice."""
    ordered = sorted(run for runs in sets for run in runs)
    for (_, stop), (start, _) in pairwise(ordered):
        if start < stop:
            raise Overlap(f"index {start} occurs twice")
    return joined([tuple(ordered)])


def divided(runs: Runs, by: int) -> Runs | None:
    """Indices of whole blocks of `by` indices, or None where a block is cut."""
    if any(start % by or stop % by for start, stop in runs):
        return None
    return tuple((start // by, stop // by) for start, stop in runs)


def multiplied(runs: Runs, by: int) -> Runs:
    """Each index widened to its block of `by` indices."""
    return tuple((start * by, stop * by) for start, stop in runs)


def shown(runs: Runs) -> str:
    """For messages: `[0,4)+[8,12)`."""
    return "+".join(f"[{start},{stop})" for start, stop in runs) or "nothing"
