"""Prices: collectives by the alpha-beta model of their link, kernels by traffic and arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tscompile.cost.errors import TopologyError
from tscompile.cost.topology import Measured, Topology
from tscompile.ir.mesh import MeshAxes

_MEGA = 10**6

Indices = NDArray[np.int64]


class Collective(StrEnum):
    """What ranks do together; the values are the ops' schema names."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"


@dataclass(frozen=True, slots=True, order=True)
class Price:
    """Predicted picoseconds; then what breaks ties: launches, bytes that one rank sends."""

    picoseconds: int = 0
    launches: int = 0
    wire_bytes: int = 0

    def __add__(self, other: Price) -> Price:
        return Price(
            self.picoseconds + other.picoseconds,
            self.launches + other.launches,
            self.wire_bytes + other.wire_bytes,
        )

    def __sub__(self, other: Price) -> Price:
        return Price(
            self.picoseconds - other.picoseconds,
            self.launches - other.launches,
            self.wire_bytes - other.wire_bytes,
        )


FREE = Price()


@dataclass(frozen=True, slots=True)
class _Group:
    """Ranks along some axes: how many, and at each level how many it multiplies the group by."""

    ranks: int
    factors: tuple[int, ...]

    @property
    def level(self) -> int:
        """The outermost level that the group's messages cross."""
        return max((i for i, factor in enumerate(self.factors) if factor > 1), default=0)

    def inside(self, level: int) -> int:
        """Ranks of the group within one domain of the next inner level."""
        count = 1
        for factor in self.factors[:level]:
            count *= factor
        return count


class CostModel:
    """Prices on one topology for the groups of one mesh, ranks being numbered innermost first."""

    def __init__(self, topology: Topology, axes: MeshAxes) -> None:
        world = 1
        for axis in axes:
            world *= axis.size
        if world > topology.ranks:
            raise TopologyError(
                f"world = {world} does not fit {topology.name}, which has {topology.ranks} ranks",
                remedy="name a topology with more ranks, such as h200-ib-2x8, or lower the world",
                where="target.topology",
            )
        self.topology = topology
        self.axes = axes
        self._groups: dict[tuple[str, ...], _Group] = {}
        self._wired: dict[tuple[Collective, tuple[str, ...], int], Price] = {}

    def memory(self, moved: int) -> int:
        """Picoseconds to move `moved` bytes between memory and the chip."""
        return moved * _MEGA // self.topology.memory

    def kernel(self, moved: int, flops: int = 0) -> Price:
        """One launch that moves `moved` bytes and does `flops` operations at the same time."""
        arithmetic = flops * _MEGA // self.topology.flops
        return Price(max(self.memory(moved), arithmetic) + self.topology.launch, 1)

    def kernels(self, moved: Indices, flops: Indices) -> Indices:
        """The picoseconds of `kernel` for many at once."""
        return np.maximum(
            _scaled(moved, self.topology.memory), _scaled(flops, self.topology.flops)
        ) + np.int64(self.topology.launch)

    def collective(self, kind: Collective, names: Sequence[str], held: int) -> Price:
        """A launch of `kind` over the axes `names`, each rank holding `held` bytes before it."""
        best = self.wired(kind, names, held)
        return best + Price(self.topology.launch, 1)

    def wired(self, kind: Collective, names: Sequence[str], held: int) -> Price:
        """The same without the launch: what a fused kernel pays."""
        key = (kind, tuple(names), held)
        if key not in self._wired:
            self._wired[key] = self._wire(kind, key[1], held)
        return self._wired[key]

    def _wire(self, kind: Collective, names: tuple[str, ...], held: int) -> Price:
        group = self._group(names)
        if group.ranks == 1:
            return FREE
        modelled = self._modelled(kind, names, held)
        entries = self._entries(kind, group)
        if not entries:
            return modelled
        time = _interpolated(entries, held)
        if held > entries[-1].bytes_:
            last = self._modelled(kind, names, entries[-1].bytes_)
            time += modelled.picoseconds - last.picoseconds
        return Price(time, 0, self._split(kind, group, held).wire_bytes)

    def wires(self, collectives: Sequence[tuple[Collective, tuple[str, ...]]]) -> Wires:
        """Collectives over axes, to be priced for many sizes."""
        groups = [self._group(axes) for _, axes in collectives]
        every = enumerate(zip(collectives, groups, strict=True))
        measured = [i for i, ((kind, _), group) in every if self._entries(kind, group)]
        return Wires(self, collectives, groups, [self._hops(group) for group in groups], measured)

    def one_shot(self, names: Sequence[str], held: int) -> Price | None:
        """Without launch, an all-reduce in which each rank reads all others'; None if it can't."""
        group = self._group(tuple(names))
        link = self.topology.links[0]
        if not link.direct or group.level > 0:
            return None
        wire = held * (group.ranks - 1)
        return Price(link.latency + link.hop + wire * _MEGA // link.bandwidth, 0, wire)

    def sent(self, kind: Collective, names: Sequence[str], held: int) -> tuple[int, ...]:
        """Bytes that one rank sends at each level of links; what crosses levels counts at each."""
        group = self._group(tuple(names))
        wire = self.wired(kind, names, held).wire_bytes
        return tuple(
            self._crossing(group, level, held)
            if kind is Collective.ALL_TO_ALL
            else (wire // group.inside(level) if factor > 1 else 0)
            for level, factor in enumerate(group.factors)
        )

    def _crossing(self, group: _Group, level: int, held: int) -> int:
        """Of an all-to-all the part for ranks whose outermost common domain is at `level`."""
        inner, factor = group.inside(level), group.factors[level]
        return held * (inner * factor - inner) // group.ranks

    def _modelled(self, kind: Collective, names: Sequence[str], held: int) -> Price:
        split = self._split(kind, self._group(tuple(names)), held)
        if kind is not Collective.ALL_REDUCE:
            return split
        return min(split, self.one_shot(names, held) or split)

    def _split(self, kind: Collective, group: _Group, held: int) -> Price:
        """Bandwidth-optimal algorithms: 1/n to or from each rank, twice for an all-reduce."""
        n = group.ranks
        legs = 2 if kind is Collective.ALL_REDUCE else 1
        wire = held * (n - 1) if kind is Collective.ALL_GATHER else legs * held * (n - 1) // n
        if kind is Collective.ALL_TO_ALL:
            time = self._exchange_time(group, held)
        else:
            time = self._ring_time(group, wire)
        latency = self.topology.links[group.level].latency + legs * self._hops(group)
        return Price(latency + time, 0, wire)

    def _ring_time(self, group: _Group, wire: int) -> int:
        """Every level carries all of `wire` at once, outer ones by all the ranks beneath them."""
        times = [0]
        for level, factor in enumerate(group.factors):
            if factor > 1:
                lanes = group.inside(level)
                times.append(wire * _MEGA // (self.topology.links[level].bandwidth * lanes))
        return max(times)

    def _exchange_time(self, group: _Group, held: int) -> int:
        """All-to-all: the part for ranks of the same domain stays on its link."""
        times = [0]
        for level, factor in enumerate(group.factors):
            if factor > 1:
                crossing = self._crossing(group, level, held)
                times.append(crossing * _MEGA // self.topology.links[level].bandwidth)
        return max(times)

    def _hops(self, group: _Group) -> int:
        time = 0
        for level, factor in enumerate(group.factors):
            link = self.topology.links[level]
            time += link.hop * (factor - 1 if link.ring else (factor - 1).bit_length())
        return time

    def _entries(self, kind: Collective, group: _Group) -> list[Measured]:
        if group.level > 0:
            return []
        found = [
            m for m in self.topology.measured if m.kind == kind.value and m.ranks == group.ranks
        ]
        return sorted(found, key=lambda m: m.bytes_)

    def _group(self, names: tuple[str, ...]) -> _Group:
        if names not in self._groups:
            self._groups[names] = self._place(names)
        return self._groups[names]

    def _place(self, names: tuple[str, ...]) -> _Group:
        """Where the axes lie: an axis of stride s and size z lies within domains of s * z ranks."""
        factors = [1] * len(self.topology.links)
        stride, ranks = 1, 1
        for axis in self.axes:
            end = stride * axis.size
            if axis.name in names:
                ranks *= axis.size
                for level, factor in enumerate(self._levels(stride, end)):
                    factors[level] *= factor
            stride = end
        return _Group(ranks, tuple(factors))

    def _levels(self, stride: int, end: int) -> list[int]:
        """How an axis from `stride` to `end` is divided among the levels."""
        factors: list[int] = []
        reached = stride
        for link in self.topology.links:
            limit = max(reached, min(end, link.ranks))
            factors.append(-(-limit // reached))
            reached = limit
        return factors


class Wires:
    """Some collectives over axes of one mesh, priced all at once as `CostModel.wired` does each."""

    def __init__(
        self,
        costs: CostModel,
        collectives: Sequence[tuple[Collective, tuple[str, ...]]],
        groups: Sequence[_Group],
        hops: Sequence[int],
        measured: Sequence[int],
    ) -> None:
        self._costs, self._collectives, self._measured = costs, collectives, measured
        kinds, links = [kind for kind, _ in collectives], costs.topology.links
        self._ranks = _numbers(group.ranks for group in groups)
        self._gathers = np.array([kind is Collective.ALL_GATHER for kind in kinds], np.bool_)
        self._exchanges = np.array([kind is Collective.ALL_TO_ALL for kind in kinds], np.bool_)
        reduces = np.array([kind is Collective.ALL_REDUCE for kind in kinds], np.bool_)
        self._legs = np.where(reduces, 2, 1)
        levels = _numbers(group.level for group in groups)
        latencies = _numbers(link.latency for link in links)
        self._latency = latencies[levels] + self._legs * _numbers(hops)
        self._one_shot = reduces & (levels == 0) & links[0].direct
        self._levels = [
            (
                link.bandwidth,
                _numbers(group.inside(level) for group in groups),
                _numbers(group.factors[level] for group in groups),
            )
            for level, link in enumerate(links)
        ]

    def __call__(self, held: Indices) -> tuple[Indices, Indices]:
        """Picoseconds and bytes sent of each, where a rank holds as many of `held` before it."""
        ranks, first = self._ranks, self._costs.topology.links[0]
        to_others = held * (ranks - 1)
        wire = np.where(self._gathers, to_others, self._legs * to_others // ranks)
        time = np.zeros_like(held)
        for bandwidth, inner, factor in self._levels:
            crossing = held * (inner * factor - inner) // ranks
            amount = np.where(self._exchanges, crossing, wire)
            rate = bandwidth * np.where(self._exchanges, 1, inner)
            time = np.maximum(time, np.where(factor > 1, _scaled(amount, rate), 0))
        time += self._latency
        shot = first.latency + first.hop + _scaled(to_others, first.bandwidth)
        better = (shot < time) | ((shot == time) & (to_others < wire))
        better &= self._one_shot
        time, wire = np.where(better, shot, time), np.where(better, to_others, wire)
        alone = ranks == 1
        time[alone], wire[alone] = 0, 0
        for i in self._measured:
            kind, axes = self._collectives[i]
            price = self._costs.wired(kind, axes, int(held[i]))
            time[i], wire[i] = price.picoseconds, price.wire_bytes
        return time, wire


def _numbers(numbers: Iterable[int]) -> Indices:
    return np.array([*numbers], np.int64)


def _scaled(amounts: Indices, rate: int | Indices) -> Indices:
    """Amounts * 10^6 // rate, without leaving 64 bits."""
    whole, rest = np.divmod(amounts, rate)
    return whole * _MEGA + rest * _MEGA // rate


def _interpolated(entries: Sequence[Measured], held: int) -> int:
    """Between the measured sizes linear, below the smallest its time."""
    if held <= entries[0].bytes_:
        return entries[0].picoseconds
    for low, high in itertools.pairwise(entries):
        if held <= high.bytes_:
            part = (held - low.bytes_) * (high.picoseconds - low.picoseconds)
            return low.picoseconds + part // (high.bytes_ - low.bytes_)
    return entries[-1].picoseconds
