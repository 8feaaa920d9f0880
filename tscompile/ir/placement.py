"""How a value lies over the mesh: Replicate, Shard(dim) or Partial on each axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tsruntime.artifact.schema import Mesh


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank along the axis holds the same bits."""

    def __str__(self) -> str:
        return "Replicate"


@dataclass(frozen=True, slots=True)
class Shard:
    """Dimension `dim` is cut into equal consecutive blocks, one for each rank along the axis."""

    dim: int

    def __str__(self) -> str:
        return f"Shard({self.dim})"


@dataclass(frozen=True, slots=True)
class Partial:
    """The value is the `reduce` ("sum", "max") of what the ranks along the axis hold."""

    reduce: str = "sum"

    def __str__(self) -> str:
        return "Partial" if self.reduce == "sum" else f"Partial({self.reduce})"


Placement: TypeAlias = Replicate | Shard | Partial
Placements: TypeAlias = tuple[Placement, ...]
"""One placement for each axis of the mesh, innermost first.

Where several axes shard one dim, the outermost of them is its most significant digit.
"""

REPLICATE = Replicate()
PARTIAL = Partial()


def replicated(mesh: Mesh) -> Placements:
    """Replicate on every axis."""
    return (REPLICATE,) * len(mesh.axes)


def over(mesh: Mesh, axes: Iterable[str], placement: Placement) -> Placements:
    """`placement` on `axes`, Replicate on the others."""
    names = set(axes)
    return tuple(placement if axis.name in names else REPLICATE for axis in mesh.axes)


def by_replica(mesh: Mesh) -> Placements:
    """Each attention replica its own rows, whole on all of its ranks."""
    return over(mesh, mesh.groups["ATTN_DP"], Shard(0))


def axes_with(mesh: Mesh, placements: Placements, placement: Placement) -> tuple[str, ...]:
    """The axes on which `placements` is `placement`, innermost first."""
    pairs = zip(mesh.axes, placements, strict=True)
    return tuple(axis.name for axis, p in pairs if p == placement)


def sharded_dims(placements: Placements) -> tuple[int, ...]:
    """The dims that some axis shards, rising."""
    dims = {p.dim for p in placements if isinstance(p, Shard)}
    return tuple(sorted(dims)) if dims else ()


def undivided_dim(mesh: Mesh, shape: tuple[int, ...], placements: Placements) -> int | None:
    """The first dim that its axes do not divide (or that is not there), or None."""
    for dim in sharded_dims(placements):
        ranks = mesh.size(axes_with(mesh, placements, Shard(dim)))
        if dim >= len(shape) or shape[dim] % ranks:
            return dim
    return None


def local_shape(mesh: Mesh, shape: tuple[int, ...], placements: Placements) -> tuple[int, ...]:
    """Shape of one rank's tile of a value of global `shape`; the dims must divide."""
    dims = sharded_dims(placements)
    if not dims:
        return shape
    local = list(shape)
    for dim in dims:
        local[dim] //= mesh.size(axes_with(mesh, placements, Shard(dim)))
    return tuple(local)


def label(mesh: Mesh, placements: Placements) -> str:
    """Text such as `Shard(1)@a+b Partial@c`; `Replicate` on every axis gives the empty string."""
    return " ".join(
        f"{placement}@{'+'.join(axes_with(mesh, placements, placement))}"
        for placement in dict.fromkeys(placements)
        if not isinstance(placement, Replicate)
    )


class Labels:
    """Labels on one mesh, each made once: most values lie as the very same objects say."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._known: dict[int, tuple[Placements, str]] = {}
        self._equal: dict[Placements, str] = {}

    def __call__(self, placements: Placements) -> str:
        """The label of placements."""
        known = self._known.get(id(placements))
        if known is None:
            text = self._equal.get(placements)
            if text is None:
                text = self._equal[placements] = label(self.mesh, placements)
            known = self._known[id(placements)] = placements, text
        return known[1]


def parse_label(mesh: Mesh, text: str) -> Placements:
    """The placements that `label` gives `text` for. Raises ValueError."""
    by_axis: dict[str, Placement] = {}
    for part in text.split():
        word, _, axes = part.partition("@")
        by_axis.update(dict.fromkeys(axes.split("+"), _parse_placement(word)))
    unknown = set(by_axis) - {axis.name for axis in mesh.axes}
    if unknown:
        raise ValueError(f"no mesh axis {', '.join(sorted(unknown))} in {text!r}")
    return tuple(by_axis.get(axis.name, REPLICATE) for axis in mesh.axes)


def _parse_placement(word: str) -> Placement:
    kind, _, argument = word.removesuffix(")").partition("(")
    match kind:
        case "Shard":
            return Shard(int(argument))
        case "Partial":
            return Partial(argument or "sum")
        case "Replicate":
            return REPLICATE
        case _:
            raise ValueError(f"{word!r} is no placement")
