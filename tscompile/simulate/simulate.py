"""Simulating a plan: every program, several steps, every value compared in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tscompile.simulate.compare import Comparison, Difference
from tscompile.simulate.errors import SimulationDiverged
from tscompile.simulate.reference import Reference
from tscompile.simulate.session import Session
from tscompile.simulate.transplant import certificate_in_float64, plan_in_float64
from tscompile.simulate.weights import random_weights
from tscompile.simulate.world import World
from tsruntime.artifact.proof.certificate import Certificate, rows_of
from tsruntime.artifact.proof.checker import derive
from tsruntime.artifact.proof.sources import replica_axes
from tsruntime.artifact.proof.tile import Local
from tsruntime.artifact.proof.traced import Traced
from tsruntime.artifact.schema import Phase, Plan, Program
from tsruntime.executor.batch import ForwardBatch

TOLERANCE = 1e-9
"""Largest max|a-b| / max|b| of any value in float64."""


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """One program's runs: how many values were compared, and the largest difference."""

    program: str
    runs: int
    values: int
    worst: Difference


class Simulation:
    """A plan and its unsharded program side by side, in float64, with random weights."""

    def __init__(self, plan: Plan, certificate: Certificate, seed: int = 0) -> None:
        self.plan = plan_in_float64(plan)
        self.certificate = certificate_in_float64(certificate)
        self.tensors = random_weights(self.certificate, seed)
        self._random = np.random.default_rng(seed)
        self.replicas = self.plan.mesh.size(replica_axes(self.plan.mesh))
        self.world = World([self.plan] * self.plan.mesh.world, self.tensors)
        self.reference = Reference(self.certificate, self.tensors, self.plan, self.replicas)
        self.sessions = [Session(self.plan, self._random) for _ in range(self.replicas)]
        self._step = 0
        self._derived: dict[int, tuple[Traced, list[dict[str, Local]]]] = {}

    def run(self, program: int) -> ProgramReport:
        """One step of random work through a program; every value compared."""
        batches = self.random_batches(program)
        return self.step(batches)

    def random_batches(self, program: int) -> list[ForwardBatch]:
        """Work for each replica, uneven, some perhaps idle; sequences go on where they can."""
        self._step += 1
        found = self.plan.programs[program]
        return [
            session.batch(
                program, self._step, self._counts(found, session, least=int(replica == 0))
            )
            for replica, session in enumerate(self.sessions)
        ]

    def step(self, batches: Sequence[ForwardBatch]) -> ProgramReport:
        """Run the batches, one a replica, and compare every value. All name one program."""
        index = batches[0].program
        program = self.plan.programs[index]
        if index not in self._derived:
            self._derived[index] = derive(self.plan, self.certificate, index)
        traced, tiles = self._derived[index]
        buffers: dict[str, dict[int, Tensor]] = {}
        self.world.prepare(batches)
        inputs = [self._inputs(program, replica) for replica in range(self.replicas)]

        def observe(rank: int, name: str, tensor: Tensor) -> None:
            buffers.setdefault(name, {})[rank] = tensor.clone()

        self.world.run(index, observe)
        values = self.reference.run(rows_of(program), inputs)
        comparison = Comparison(self.plan.mesh, traced, tiles, values)
        ranks = range(self.plan.mesh.world)
        found = [comparison.value(n, [b[r] for r in ranks]) for n, b in buffers.items()]
        worst = max(found, key=lambda difference: difference.error)
        return ProgramReport(program.name, 1, len(found), worst)

    def _inputs(self, program: Program, replica: int) -> Mapping[str, Tensor]:
        rank = next(r for r in range(self.plan.mesh.world) if self.world.replica(r) == replica)
        index = self.plan.programs.index(program)
        bound = self.world.executors[rank].values(index)
        names = {v.name: v.storage.input for v in program.values if v.storage.kind == "input"}
        return {source: bound[name].clone() for name, source in names.items()}

    def _counts(self, program: Program, session: Session, *, least: int) -> list[tuple[int, int]]:
        """(slot, tokens) of `least` or more sequences; all are started anew where none has room."""
        random, slots = self._random, len(session.sequences)
        order = [int(slot) for slot in random.permutation(slots)]
        if not any(session.fitting(slot, 1, session.free_pages)[0] for slot in order):
            session.reset()
        most = min(program.sequences, program.tokens, slots)
        asked = int(random.integers(least, most + 1))
        counts: list[tuple[int, int]] = []
        left, pages = program.tokens, session.free_pages
        for slot in order:
            if len(counts) == asked or not left:
                break
            wanted = 1 if program.phase is Phase.DECODE else int(random.integers(1, left + 1))
            count, taken = session.fitting(slot, wanted, pages)
            if count:
                counts.append((slot, count))
                left, pages = left - count, pages - taken
        return counts


def simulate(
    plan: Plan, certificate: Certificate, *, seed: int = 0, rounds: int = 2
) -> tuple[ProgramReport, ...]:
    """Run every program `rounds` times, prefill before decode, sequences going on throughout.

    Raises SimulationDiverged where a value differs by more than TOLERANCE.
    """
    simulation = Simulation(plan, certificate, seed)
    order = sorted(range(len(plan.programs)), key=lambda i: plan.programs[i].phase is Phase.DECODE)
    reports: dict[int, ProgramReport] = {}
    with torch.no_grad():
        for index in order * rounds:
            report = simulation.run(index)
            _refuse(report, plan)
            before = reports.get(index)
            reports[index] = report if before is None else _together(before, report)
    return tuple(reports[index] for index in range(len(plan.programs)))


def _refuse(report: ProgramReport, plan: Plan) -> None:
    worst = report.worst
    if not worst.error <= TOLERANCE:
        raise SimulationDiverged(
            f"value {worst.value} on rank {worst.rank} differs by {worst.error:.3g} of its size, "
            f"more than {TOLERANCE:.0e}",
            remedy="this is a defect of the compiler or of an edited plan; report it",
            where=f"{plan.name}, program {report.program}",
        )


def _together(a: ProgramReport, b: ProgramReport) -> ProgramReport:
    worst = max(a.worst, b.worst, key=lambda difference: difference.error)
    return ProgramReport(a.program, a.runs + b.runs, a.values + b.values, worst)
