"""Logits of every position of given prompts, through the plan's all-logits program.

Each rank plans the same steps with a scheduler of its own (same inputs, same decisions), so that
nothing but the plan's own collectives joins the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from ranks_in_threads import TIMEOUT, on_ranks
from torch import Tensor
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

from tsruntime.artifact.load import load_plan
from tsruntime.artifact.weights import WeightStore
from tsruntime.engine.step import scheduler_config
from tsruntime.executor.batch import ForwardBatch, GroupBatch
from tsruntime.executor.collectives import connect_mesh
from tsruntime.executor.executor import Executor
from tsschedulers import _core as schedulers

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Logits [n, vocab] of positions `first` to `first + n` of prompt `prompt`."""

    prompt: int
    first: int
    logits: Tensor


def relative_error(ours: Tensor, reference: Tensor) -> Tensor:
    """max|a - b| / max|b| of each position. [n, vocab] twice -> [n]."""
    difference = (ours.double() - reference.double()).abs().amax(dim=-1)
    return difference / reference.double().abs().amax(dim=-1)


def teacher_force(executor: Executor, prompts: Sequence[Sequence[int]]) -> Iterator[Chunk]:
    """Feed the prompts, all submitted at once, through chunked prefill; logits of every row."""
    plan = executor.plan
    program = next(i for i, p in enumerate(plan.programs) if p.logits == "all")
    scheduler = schedulers.Scheduler(scheduler_config(plan))
    handles = {scheduler.submit(list(p), 1): i for i, p in enumerate(prompts)}
    seats: dict[int, int] = {}
    while not (step := scheduler.plan()).empty:
        seats |= {a.slot: handles[a.handle] for a in step.admitted}
        groups = tuple(
            GroupBatch(g.slot_mapping, g.table_deltas, g.copies, g.zero_pages) for g in step.groups
        )
        batch = ForwardBatch(
            step.step,
            program,
            step.slots,
            step.seq_lens,
            step.query_starts,
            step.token_ids,
            step.positions,
            groups,
        )
        logits = executor.forward(batch)
        for row, slot in enumerate(step.slots.tolist()):
            start, end = step.query_starts[row : row + 2].tolist()
            yield Chunk(seats[slot], int(step.positions[start]), logits[start:end])
        sampled = step.slots[step.samples == 1]
        ended = np.ones(len(sampled), np.bool_)
        scheduler.commit(step.step, sampled, np.zeros(len(sampled), np.int32), ended)


def errors(
    executor: Executor, prompts: Sequence[Sequence[int]], reference: Path
) -> dict[int, list[float]]:
    """Per prompt, the relative error of each position against `reference/<prompt>.npy`."""
    found: dict[int, list[float]] = {i: [0.0] * len(p) for i, p in enumerate(prompts)}
    for chunk in teacher_force(executor, prompts):
        known: Floats = np.load(reference / f"{chunk.prompt}.npy", mmap_mode="r")
        end = chunk.first + len(chunk.logits)
        rows = torch.tensor(known[chunk.first : end])
        measured = relative_error(chunk.logits, rows)
        found[chunk.prompt][chunk.first : end] = [float(error) for error in measured]
    return found


def measure(
    artifact: Path, batches: Sequence[Sequence[Sequence[int]]], references: Sequence[Path]
) -> list[dict[int, list[float]]]:
    """`errors` of each batch of prompts on rank 0, all ranks running on threads over gloo."""
    plan = load_plan(artifact)

    def rank(index: int, store: Store) -> list[dict[int, list[float]]]:
        communicators = connect_mesh(plan, index, store, TIMEOUT)
        executor = Executor(plan, index, WeightStore(artifact, plan, index), communicators)
        with torch.no_grad():
            return [
                errors(executor, batch, reference)
                for batch, reference in zip(batches, references, strict=True)
            ]

    return on_ranks(plan.mesh.world, rank)[0]
