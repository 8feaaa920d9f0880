"""One rank's executor: a plan bound to memory, run a program at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tsruntime.artifact.schema import Plan, Program
from tsruntime.executor.batch import NO_PROGRAM, ForwardBatch
from tsruntime.executor.bind import (
    Communicators,
    Memory,
    Step,
    TensorStore,
    bind_steps,
    bind_values,
)
from tsruntime.executor.inputs import InputBuffers, ProgramInputs, program_inputs
from tsruntime.executor.output import StepOutput, Wait
from tsruntime.graphs.host import HostGraph
from tsruntime.kv_cache.pool import KvPools
from tsruntime.kv_cache.table import PageTable


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """A program of the plan on one rank's memory."""

    program: Program
    inputs: ProgramInputs
    values: Mapping[str, Tensor]
    steps: tuple[Step, ...]
    graph: HostGraph
    output: Tensor


class Executor:
    """Runs the programs of `plan` as rank `rank`.

    The arena is one allocation, as large as the largest program needs; weights come from `weights`
    and are not copied. Nothing is global: several ranks may live in one process, each with its own
    executor, as long as their communicators meet (each on its own thread, say).
    """

    def __init__(
        self, plan: Plan, rank: int, weights: TensorStore, communicators: Communicators
    ) -> None:
        self.plan = plan
        self.rank = rank
        self.pools = KvPools(plan.kv_cache)
        self.tables = tuple(
            PageTable(plan.limits.max_batch, plan.limits.max_pages) for _ in plan.kv_cache.groups
        )
        self.arena = torch.empty(max(p.arena_bytes for p in plan.programs), dtype=torch.uint8)
        tensors = {weight.name: weights.tensor(weight.name) for weight in plan.weights}
        memory = Memory(self.arena, tensors, InputBuffers(plan), self.pools)
        self._programs = tuple(
            _bind(plan, program, memory, rank, communicators) for program in plan.programs
        )

    def move_pages(self, batch: ForwardBatch) -> None:
        """Do what the batch says of pages: stores, loads, page tables, copies, zero pages."""
        for group, part, table in zip(
            self.plan.kv_cache.groups, batch.groups, self.tables, strict=True
        ):
            self.pools.store_pages(group.name, part.stores)
            self.pools.load_pages(group.name, part.loads)
            table.apply(part.table_deltas)
            self.pools.copy_pages(group.name, part.copies)
            self.pools.zero_pages(group.name, part.zero_pages)

    def prepare(self, batch: ForwardBatch) -> None:
        """Move the batch's pages, and write the inputs of its program."""
        self.move_pages(batch)
        self._programs[batch.program].inputs.write(batch, self.tables)

    def forward(self, batch: ForwardBatch) -> Tensor:
        """Run one step; the logits [rows, vocab_size], valid until the next step.

        Row i belongs to sequence i (`logits` "last") or to token i ("all"); rows beyond the batch
        are padding and may hold anything.
        """
        self.prepare(batch)
        bound = self._programs[batch.program]
        bound.graph.replay()
        return bound.output

    def run(self, batch: ForwardBatch) -> StepOutput:
        """`forward`; of a batch without a program `move_pages`, and logits without a row."""
        if batch.program != NO_PROGRAM:
            return StepOutput(self.forward(batch))
        self.move_pages(batch)
        return StepOutput(torch.empty(0, self.plan.vocab_size))

    draws_tokens = False

    def launch(self, batch: ForwardBatch) -> Wait:
        """`run`, once it is waited for."""
        return partial(self.run, batch)

    def steps(self, program: int) -> Iterator[Step]:
        """The program's ops one at a time, in order, for whoever interleaves ranks.

        After `prepare`, running every step equals `forward`.
        """
        return iter(self._programs[program].steps)

    def output(self, program: int) -> Tensor:
        """The tensor that holds the program's logits."""
        return self._programs[program].output

    def values(self, program: int) -> Mapping[str, Tensor]:
        """Every value of the program by name; arena values share storage over time."""
        return self._programs[program].values


def _bind(
    plan: Plan, program: Program, memory: Memory, rank: int, communicators: Communicators
) -> BoundProgram:
    values = bind_values(program, memory)
    steps = bind_steps(program, values, plan.mesh, rank, communicators)
    return BoundProgram(
        program,
        program_inputs(plan, program, memory.inputs),
        values,
        steps,
        HostGraph(tuple(step.run for step in steps)),
        values[program.output],
    )
