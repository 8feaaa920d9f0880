"""Logits of every position of given prompts, through the plan's all-logits program.

Run as a module it is one rank of several: each plans the same steps with a scheduler of its own
(same inputs, same decisions), so that nothing but the plan's own collectives joins the ranks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]

from tsruntime.artifact.load import load_plan
from tsruntime.artifact.schema import Plan
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
        error: list[float] = relative_error(chunk.logits, rows).tolist()  # pyright: ignore[reportUnknownMemberType]
        found[chunk.prompt][chunk.first : end] = error
    return found


def measure(
    artifact: Path, batches: Sequence[Sequence[Sequence[int]]], references: Sequence[Path]
) -> list[dict[int, list[float]]]:
    """`errors` of each batch of prompts, run by as many processes as the artifact has ranks."""
    world = load_plan(artifact).mesh.world
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.json"
        job.write_text(json.dumps([batches, [str(path) for path in references]]))
        ranks = [
            subprocess.Popen([sys.executable, __file__, str(artifact), folder, str(rank)])
            for rank in range(world)
        ]
        codes = [rank.wait(timeout=900) for rank in ranks]
        assert codes == [0] * world, codes
        results = json.loads((Path(folder) / "errors.json").read_text())
    return [{int(key): value for key, value in result.items()} for result in results]


def _rank(artifact: Path, folder: Path, rank: int) -> None:
    torch.set_grad_enabled(False)
    plan = load_plan(artifact)
    executor = _executor(plan, artifact, folder, rank)
    batches, references = json.loads((folder / "job.json").read_text())
    results = [
        errors(executor, batch, Path(reference))
        for batch, reference in zip(batches, references, strict=True)
    ]
    if rank == 0:
        (folder / "errors.json").write_text(json.dumps(results))


def _executor(plan: Plan, artifact: Path, folder: Path, rank: int) -> Executor:
    store = FileStore(str(folder / "store"), plan.mesh.world)
    communicators = connect_mesh(plan, rank, store, timedelta(minutes=5))
    return Executor(plan, rank, WeightStore(artifact, plan, rank), communicators)


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
