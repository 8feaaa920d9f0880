"""The mesh: the common refinement of the parallel groups' sizes into named axes."""

from __future__ import annotations

import string
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from tscompile.ir.errors import MeshError
from tsruntime.artifact.schema import Axis, Mesh

ATTN_TP = "ATTN_TP"
ATTN_KV = "ATTN_KV"
ATTN_DP = "ATTN_DP"
DENSE_TP = "DENSE_TP"
MOE_TP = "MOE_TP"
MOE_EP = "MOE_EP"
MOE_TP_EP = "MOE_TP_EP"

MeshAxes: TypeAlias = tuple[Axis, ...]
"""The axes of a mesh, innermost first: the hashable part of a `Mesh`."""


@dataclass(frozen=True, slots=True)
class ParallelSizes:
    """Ranks in all and in each group; experts span moe_tp * moe_ep ranks, TP innermost."""

    world: int
    attn_tp: int
    dense_tp: int
    moe_tp: int = 1
    moe_ep: int = 1


def build_mesh(sizes: ParallelSizes, kv_heads: int | None = None) -> Mesh:
    """The coarsest mesh in which each group is a set of axes, innermost axis named `a`.

    A group of n ranks is made of the axes below the cut at n, so the cuts must divide one
    another; an axis is what lies between two cuts. Where attn_tp exceeds `kv_heads`, ATTN_TP is
    cut again: its inner axes share a KV head, the outer ones, ATTN_KV, part the KV heads. Raises
    MeshError for sizes that do not nest.
    """
    sharing = max(1, sizes.attn_tp // (kv_heads or sizes.attn_tp))
    cuts = _nested_cuts(sizes, sharing)
    axes: list[Axis] = []
    below: dict[int, tuple[str, ...]] = {1: ()}
    inner = 1
    for cut in cuts:
        axes.append(Axis(string.ascii_lowercase[len(axes)], cut // inner))
        below[cut] = tuple(axis.name for axis in axes)
        inner = cut
    everything = tuple(axis.name for axis in axes)
    moe_tp, moe = below[sizes.moe_tp], below[sizes.moe_tp * sizes.moe_ep]
    groups = {
        ATTN_TP: below[sizes.attn_tp],
        ATTN_KV: below[sizes.attn_tp][len(below[sharing]) :],
        ATTN_DP: everything[len(below[sizes.attn_tp]) :],
        DENSE_TP: below[sizes.dense_tp],
        MOE_TP: moe_tp,
        MOE_EP: moe[len(moe_tp) :],
        MOE_TP_EP: moe,
    }
    return Mesh(tuple(axes), groups)


def replicas_of(mesh: Mesh) -> int:
    """Number of attention replicas."""
    return mesh.size(mesh.groups[ATTN_DP])


def sharing_axes(mesh: Mesh) -> frozenset[str]:
    """The axes along which ranks share a KV head and part the query heads that read it."""
    return frozenset(mesh.groups[ATTN_TP]) - frozenset(mesh.groups[ATTN_KV])


def _cuts(sizes: ParallelSizes, sharing: int) -> tuple[tuple[str, int], ...]:
    return (
        ("attn_tp / KV heads", sharing),
        ("attn_tp", sizes.attn_tp),
        ("dense_tp", sizes.dense_tp),
        ("moe_tp", sizes.moe_tp),
        ("moe_tp * moe_ep", sizes.moe_tp * sizes.moe_ep),
        ("world", sizes.world),
    )


def _nested_cuts(sizes: ParallelSizes, sharing: int) -> list[int]:
    """Distinct group sizes above 1 in rising order, each dividing the next."""
    named = _cuts(sizes, sharing)
    for name, size in named:
        if size < 1 or sizes.world % size:
            raise MeshError(
                f"{name} = {size} does not divide world = {sizes.world}",
                remedy=f"use one of {_listed(divisors(sizes.world))} for {name}",
                where=f"parallel.{name.split()[0]}",
            )
    ordered = sorted(named, key=lambda cut: cut[1])
    for (low, small), (high, large) in pairwise(ordered):
        if large % small:
            legal = [
                n for n in divisors(sizes.world) if all(n % m == 0 or m % n == 0 for _, m in named)
            ]
            raise MeshError(
                f"{low} = {small} and {high} = {large} do not nest in world = {sizes.world}: "
                "the smaller must divide the larger",
                remedy=f"sizes that nest with all the others: {_listed(legal)}",
                where=f"parallel.{high.split()[0]}",
            )
    return sorted({size for _, size in named if size > 1})


def divisors(n: int) -> list[int]:
    """The divisors of `n`, rising."""
    return [d for d in range(1, n + 1) if n % d == 0]


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
