"""Real buffers of all ranks, and actions run on them with no knowledge of placements.

What a placement means is written here once more, from coordinates alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tscompile.cost.model import Collective
from tscompile.ir.placement import Partial, Placements, Shard
from tscompile.search.layout import MeshAxes, View
from tscompile.search.steps import Action, Communicate, Mask, Permute, Slice

Buffer = NDArray[np.float64]


@cache
def coordinates(axes: MeshAxes, rank: int) -> dict[str, int]:
    """The rank's digit on each axis."""
    digits: dict[str, int] = {}
    for axis in axes:
        rank, digits[axis.name] = divmod(rank, axis.size)
    return digits


def world(axes: MeshAxes) -> int:
    """Number of ranks."""
    return int(np.prod([axis.size for axis in axes], dtype=np.int64))


@cache
def rows_of(axes: MeshAxes, view: View, placements: Placements, dim: int, rank: int) -> list[int]:
    """The indices along `dim` that the rank's tile holds, in its order."""
    here = coordinates(axes, rank)
    kept: list[int] = []
    for index in range(view.shape[dim]):
        rest = view.shape[dim]
        left, held = index, True
        for i in reversed(range(len(axes))):
            if axes[i].name not in view.digits[dim]:
                continue
            rest //= axes[i].size
            digit, left = divmod(left, rest)
            if placements[i] == Shard(dim) and digit != here[axes[i].name]:
                held = False
        if held:
            kept.append(index)
    return kept


def lay_out(
    axes: MeshAxes, view: View, placements: Placements, value: Buffer, noise: np.random.Generator
) -> list[Buffer]:
    """Every rank's tile; along Partial axes small whole numbers that sum to the value."""
    partial = [i for i, p in enumerate(placements) if isinstance(p, Partial)]
    names = [axes[i].name for i in partial]
    parts: dict[tuple[int, ...], Buffer] = {}
    shares = [()] if not partial else list(np.ndindex(*(axes[i].size for i in partial)))
    left = value.copy()
    for share in shares[1:]:
        parts[share] = noise.integers(-9, 9, value.shape).astype(np.float64)
        left = left - parts[share]
    parts[shares[0]] = left
    tiles: list[Buffer] = []
    for rank in range(world(axes)):
        here = coordinates(axes, rank)
        tiles.append(_tile(axes, view, placements, parts[tuple(here[n] for n in names)], rank))
    return tiles


def _tile(axes: MeshAxes, view: View, placements: Placements, value: Buffer, rank: int) -> Buffer:
    for dim in range(value.ndim):
        value = np.take(value, rows_of(axes, view, placements, dim, rank), axis=dim)
    return value.copy()


def holds(
    axes: MeshAxes, view: View, placements: Placements, value: Buffer, tiles: Sequence[Buffer]
) -> bool:
    """Whether the tiles are the value in that placement: sums where Partial, else equal bits."""
    partial = {axes[i].name for i, p in enumerate(placements) if isinstance(p, Partial)}
    sums: dict[tuple[tuple[str, int], ...], Buffer] = {}
    for rank, tile in enumerate(tiles):
        here = coordinates(axes, rank)
        home = tuple((n, d) for n, d in here.items() if n not in partial)
        sums[home] = sums[home] + tile if home in sums else tile
    for rank in range(len(tiles)):
        here = coordinates(axes, rank)
        home = tuple((n, d) for n, d in here.items() if n not in partial)
        if not np.array_equal(sums[home], _tile(axes, view, placements, value, rank)):
            return False
    return True


def run(axes: MeshAxes, action: Action, tiles: Sequence[Buffer]) -> list[Buffer]:
    """The action on every rank."""
    match action:
        case Permute():
            return [_permute(action, tile) for tile in tiles]
        case Mask():
            return [
                tile if _position(axes, action.axes, rank) == 0 else np.zeros_like(tile)
                for rank, tile in enumerate(tiles)
            ]
        case Slice():
            ranks = _size(axes, action.axes)
            return [
                np.split(tile, ranks, action.dim)[_position(axes, action.axes, rank)]
                for rank, tile in enumerate(tiles)
            ]
        case Communicate():
            return _communicate(axes, action, tiles)


def _permute(action: Permute, tile: Buffer) -> Buffer:
    before, behind = tile.shape[: action.dim], tile.shape[action.dim + 1 :]
    cut = tile.reshape(*before, *action.sizes, *behind)
    first = len(before)
    order: list[Any] = [
        *range(first),
        *(first + i for i in action.order),
        *range(first + len(action.sizes), cut.ndim),
    ]
    return np.transpose(cut, order).reshape(tile.shape)


def _size(axes: MeshAxes, names: Sequence[str]) -> int:
    return int(np.prod([axis.size for axis in axes if axis.name in names], dtype=np.int64))


def _position(axes: MeshAxes, names: Sequence[str], rank: int) -> int:
    here, index, stride = coordinates(axes, rank), 0, 1
    for axis in axes:
        if axis.name in names:
            index += here[axis.name] * stride
            stride *= axis.size
    return index


def _communicate(axes: MeshAxes, action: Communicate, tiles: Sequence[Buffer]) -> list[Buffer]:
    done: list[Buffer] = list(tiles)
    seen: set[int] = set()
    for rank in range(len(tiles)):
        if rank in seen:
            continue
        here = coordinates(axes, rank)
        group = [
            other
            for other in range(len(tiles))
            if all(
                coordinates(axes, other)[axis.name] == here[axis.name]
                for axis in axes
                if axis.name not in action.axes
            )
        ]
        group.sort(key=lambda r: _position(axes, action.axes, r))
        seen.update(group)
        results = _exchange(action, [tiles[r] for r in group])
        for member, result in zip(group, results, strict=True):
            done[member] = result
    return done


def _exchange(action: Communicate, held: list[Buffer]) -> list[Buffer]:
    ranks = len(held)
    match action.kind:
        case Collective.ALL_REDUCE:
            return [np.sum(held, axis=0)] * ranks
        case Collective.ALL_GATHER:
            return [np.concatenate(held, axis=action.gather or 0)] * ranks
        case Collective.REDUCE_SCATTER:
            return list(np.split(np.sum(held, axis=0), ranks, action.scatter or 0))
        case Collective.ALL_TO_ALL:
            cut = [np.split(tile, ranks, action.scatter or 0) for tile in held]
            return [
                np.concatenate([cut[sender][i] for sender in range(ranks)], axis=action.gather or 0)
                for i in range(ranks)
            ]
