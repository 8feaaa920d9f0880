"""Times and loads of a communication plan's entries on the topology that it names.

A plan holds no time: it is predicted from what an entry moves, computes and sends, by the cost
model of this version, also for a plan that was read from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tscompile.communication.plan import CommunicationPlan, Entry, ProgramPlan
from tscompile.cost.model import FREE, Collective, CostModel, Price
from tscompile.cost.topology import find_topology
from tsruntime.artifact.schema import Mesh

_SCATTER = "reduce_scatter_add_rms_norm"

LEGS: Mapping[str, tuple[Collective, ...]] = {
    **{kind.value: (kind,) for kind in Collective},
    "all_reduce_add_rms_norm": (Collective.ALL_REDUCE,),
    _SCATTER: (Collective.REDUCE_SCATTER,),
    f"{_SCATTER}_all_gather": (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
}
"""The collectives that each communicating op is made of."""

BOTH = "both"
"""Note of a fused gather that brings back the sum as well as what was normed."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One collective of an entry, and the bytes that a rank holds before it."""

    kind: Collective
    held: int


@dataclass(frozen=True, slots=True)
class Load:
    """One step of a program on one rank: time, launches, bytes sent in all and at each level.

    `levels` counts the topology's links, innermost first; what crosses two levels counts at both.
    `collectives` are entries that communicate.
    """

    picoseconds: int = 0
    launches: int = 0
    wire: int = 0
    levels: tuple[int, ...] = ()
    collectives: int = 0


class Prices:
    """Prices of one plan's entries, each distinct one worked out once."""

    def __init__(self, plan: CommunicationPlan) -> None:
        self.mesh, self.topology = plan.mesh, find_topology(plan.target.topology)
        self.costs = CostModel(self.topology, plan.mesh.axes)
        self._known: dict[Entry, Load] = {}

    def entry(self, entry: Entry) -> Load:
        """The load of one entry, run once."""
        if entry not in self._known:
            self._known[entry] = self._load(entry)
        return self._known[entry]

    def program(self, program: ProgramPlan) -> Load:
        """The load of one step."""
        levels = [0] * len(self.topology.links)
        time = launches = wire = collectives = 0
        for section in program.sections:
            for entry in section.entries:
                load = self.entry(entry)
                time += section.times * load.picoseconds
                launches += section.times * load.launches
                wire += section.times * load.wire
                collectives += section.times * load.collectives
                for level, sent in enumerate(load.levels):
                    levels[level] += section.times * sent
        return Load(time, launches, wire, tuple(levels), collectives)

    def _load(self, entry: Entry) -> Load:
        on_chip = self.costs.kernel(entry.moved, entry.flops)
        time = on_chip.picoseconds + (entry.launches - 1) * self.topology.launch
        levels = [0] * len(self.topology.links)
        if entry.communicates:
            time += wires(self.costs, self.mesh, entry).picoseconds
            for leg in legs(self.mesh, entry):
                sent = self.costs.sent(leg.kind, entry.axes, leg.held)
                levels = [a + b for a, b in zip(levels, sent, strict=True)]
        talks = int(entry.communicates)
        return Load(time, entry.launches, entry.wire, tuple(levels), talks)


def legs(mesh: Mesh, entry: Entry) -> list[Leg]:
    """The collectives that an entry is made of, in order."""
    first, *rest = LEGS[entry.op]
    found = [Leg(first, entry.held)]
    if rest:
        parts = 2 if entry.note == BOTH else 1
        found.append(Leg(rest[0], parts * entry.held // mesh.size(entry.axes)))
    return found


def wires(costs: CostModel, mesh: Mesh, entry: Entry) -> Price:
    """What an entry pays for its wires, and the bytes that one rank sends; no launch.

    A fused all-reduce reads the other ranks' memory in one shot where they can.
    """
    if entry.op == "all_reduce_add_rms_norm" and costs.topology.links[0].direct:
        one_shot = costs.one_shot(entry.axes, entry.held)
        if one_shot is not None:
            return one_shot
    price = FREE
    for leg in legs(mesh, entry):
        price += costs.wired(leg.kind, entry.axes, leg.held)
    return price
