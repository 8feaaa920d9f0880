"""What a machine charges, and one rank's tiles: the brute force's own arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tscompile.ir.placement import Partial, Placements, Shard
from tscompile.search.layout import View
from tscompile.search.program import Program

Place = tuple[str, ...]
Cost = tuple[int, int, int]

NOTHING: Cost = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes of `node` ranks. Times in picoseconds, rates in 10^6 bytes or operations a second."""

    node: int
    latency: tuple[int, int]
    hop: tuple[int, int]
    rate: tuple[int, int]
    memory: int
    flops: int
    launch: int


def plus(*costs: Cost) -> Cost:
    """Sums."""
    return (sum(c[0] for c in costs), sum(c[1] for c in costs), sum(c[2] for c in costs))


def place_of(placements: Placements) -> Place:
    """In this module's letters."""
    return tuple(
        str(p.dim) if isinstance(p, Shard) else "P" if isinstance(p, Partial) else "R"
        for p in placements
    )


class Prices:
    """Sizes and costs under one program's mesh."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine = program, machine
        self.axes = [axis.name for axis in program.axes]
        self.ranks = {axis.name: axis.size for axis in program.axes}

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        return self.program.readers()

    def _cut(self, place: Place, dim: int | None = None) -> int:
        return math.prod(
            self.ranks[a]
            for a, p in zip(self.axes, place, strict=True)
            if p not in "RP" and (dim is None or p == str(dim))
        )

    def _tile(self, view: View, place: Place) -> int:
        return math.prod(view.shape) * view.itemsize // self._cut(place)

    def _extent(self, view: View, place: Place, dim: int) -> int:
        return view.shape[dim] // self._cut(place, dim)

    def _kernel(self, moved: int, flops: int = 0) -> Cost:
        m = self.machine
        return (max(moved * 10**6 // m.memory, flops * 10**6 // m.flops) + m.launch, 1, 0)

    def _wire(self, kind: str, names: list[str], held: int) -> Cost:
        """One collective without its launch; ranks are listed to see which share a node."""
        m, group = self.machine, [0]
        stride = 1
        for axis in self.axes:
            if axis in names:
                group = [r + i * stride for i in range(self.ranks[axis]) for r in group]
            stride *= self.ranks[axis]
        n, near = len(group), sum(r < m.node for r in group)
        nodes = n // near
        legs = 2 if kind == "AR" else 1
        wire = held * (n - 1) if kind == "AG" else legs * held * (n - 1) // n
        shares = [
            (near > 1, held * (near - 1) // n if kind == "A2A" else wire, m.rate[0]),
            (
                nodes > 1,
                *(
                    (held * (n - near) // n, m.rate[1])
                    if kind == "A2A"
                    else (wire, m.rate[1] * near)
                ),
            ),
        ]
        time = max((size * 10**6 // rate for used, size, rate in shares if used), default=0)
        hops = math.ceil(math.log2(near)) * m.hop[0] + math.ceil(math.log2(nodes)) * m.hop[1]
        split = (m.latency[nodes > 1] + legs * hops + time, 0, wire)
        if kind == "AR" and nodes == 1:
            return min(split, self._direct(n, held))
        return split

    def _direct(self, n: int, held: int) -> Cost:
        m, wire = self.machine, held * (n - 1)
        return (m.latency[0] + m.hop[0] + wire * 10**6 // m.rate[0], 0, wire)

    def _one_shot(self, names: list[str], held: int) -> Cost | None:
        last = max(self.axes.index(n) for n in names)
        span = math.prod(self.ranks[a] for a in self.axes[: last + 1])
        if span > self.machine.node:
            return None
        return self._direct(math.prod(self.ranks[n] for n in names), held)
