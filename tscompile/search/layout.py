"""How a value may lie over the mesh: dims viewed as digits, legal placements, one rank's tile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tscompile.ir.mesh import ATTN_DP, ATTN_TP, MeshAxes
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Placements, Shard
from tsruntime.artifact.schema import Mesh

Digits: TypeAlias = tuple[tuple[str, ...], ...]
"""For each dim the axes that may cut it, innermost first."""


@dataclass(frozen=True, slots=True)
class View:
    """A value's global shape, bytes an element, and the axes whose digits cut each dim.

    A dim is viewed as (outermost axis, …, innermost axis, rest) over its digit axes. Shard over a
    set of them fixes those digits, so a dim that its innermost digit alone shards is a set of
    strided blocks: with digits a (inner) and b of 2 ranks each, eight rows sharded over {a} are
    rows 0, 1, 4, 5 on coordinate 0. Shard over all digit axes is one block.
    """

    shape: tuple[int, ...]
    digits: Digits
    itemsize: int

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole value."""
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size


def make_view(
    axes: MeshAxes, shape: Sequence[int], digits: Sequence[Sequence[str]], itemsize: int
) -> View:
    """A view whose digits are ordered as the mesh is. Raises ValueError where they don't divide."""
    order = {axis.name: index for index, axis in enumerate(axes)}
    ordered = tuple(tuple(sorted(names, key=order.__getitem__)) for names in digits)
    if len(ordered) != len(shape):
        raise ValueError(f"{len(shape)} dims, digits for {len(ordered)}")
    for extent, names in zip(shape, ordered, strict=True):
        if extent % ranks_of(axes, names):
            raise ValueError(f"{extent} is not divided by the axes {', '.join(names)}")
    return View(tuple(shape), ordered, itemsize)


def ranks_of(axes: MeshAxes, names: Sequence[str]) -> int:
    """Number of ranks along the axes `names`."""
    count = 1
    for axis in axes:
        if axis.name in names:
            count *= axis.size
    return count


def dividing_axes(axes: MeshAxes, names: Sequence[str], extent: int) -> tuple[str, ...]:
    """Of the axes `names`, innermost first, those whose product still divides `extent`."""
    kept: list[str] = []
    for axis in axes:
        if axis.name in names:
            if extent % (ranks_of(axes, kept) * axis.size):
                break
            kept.append(axis.name)
    return tuple(kept)


def token_axes(mesh: Mesh, rows: int) -> tuple[str, ...]:
    """The digit axes of a token dim with `rows` rows a replica, innermost first.

    All of ATTN_DP (its digit is the replica), then those of ATTN_TP, innermost first, while their
    product divides the rows.
    """
    inner = dividing_axes(mesh.axes, mesh.groups[ATTN_TP], rows)
    return tuple(a.name for a in mesh.axes if a.name in inner or a.name in mesh.groups[ATTN_DP])


def legal_placements(axes: MeshAxes, digits: Digits) -> tuple[Placements, ...]:
    """Every placement of a value with these digits, in one fixed order."""
    choices: list[tuple[Placement, ...]] = []
    for axis in axes:
        cuts = tuple(Shard(dim) for dim, names in enumerate(digits) if axis.name in names)
        choices.append((REPLICATE, PARTIAL, *cuts))
    return tuple(itertools.product(*choices))


def is_legal(axes: MeshAxes, view: View, placements: Placements) -> bool:
    """Whether each Shard names a dim of which its axis is a digit."""
    return all(
        not isinstance(p, Shard) or (p.dim < len(view.digits) and axis.name in view.digits[p.dim])
        for axis, p in zip(axes, placements, strict=True)
    )


def axes_where(axes: MeshAxes, placements: Placements, placement: Placement) -> tuple[str, ...]:
    """The axes on which `placements` is `placement`, innermost first."""
    return tuple(a.name for a, p in zip(axes, placements, strict=True) if p == placement)


def shard_count(axes: MeshAxes, placements: Placements) -> int:
    """Into how many tiles the value is cut."""
    count = 1
    for axis, placement in zip(axes, placements, strict=True):
        if isinstance(placement, Shard):
            count *= axis.size
    return count


def tile_shape(axes: MeshAxes, shape: Sequence[int], placements: Placements) -> tuple[int, ...]:
    """Shape of one rank's tile of a value of global `shape`."""
    local = list(shape)
    for axis, placement in zip(axes, placements, strict=True):
        if isinstance(placement, Shard):
            local[placement.dim] //= axis.size
    return tuple(local)


def tile_bytes(axes: MeshAxes, view: View, placements: Placements) -> int:
    """Bytes of one rank's tile."""
    return view.total_bytes // shard_count(axes, placements)


def free_digits(axes: MeshAxes, view: View, placements: Placements, dim: int) -> tuple[str, ...]:
    """The digits of `dim` that a rank holds whole, outermost first; then comes the rest."""
    cut = axes_where(axes, placements, Shard(dim))
    return tuple(name for name in reversed(view.digits[dim]) if name not in cut)
