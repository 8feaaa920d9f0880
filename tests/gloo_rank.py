"""A rank process of tests/e2e/test_gloo_cases.py: runs every case of a folder over gloo.

`python gloo_rank.py FOLDER RANK WORLD`; of a case for fewer ranks the first ones take part.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed import (
    FileStore,  # pyright: ignore[reportPrivateImportUsage]
    PrefixStore,  # pyright: ignore[reportPrivateImportUsage]
    Store,  # pyright: ignore[reportPrivateImportUsage]
)

from tscompile.simulate.weights import Shards
from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import ForwardBatch
from tsruntime.executor.collectives import connect_mesh
from tsruntime.executor.executor import Executor

TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Job:
    """A plan, whole weights by checkpoint name, and for each step and replica a batch."""

    plan: Plan
    tensors: dict[str, Tensor]
    steps: tuple[tuple[ForwardBatch, ...], ...]


def replica_of(plan: Plan, rank: int) -> int:
    """The attention replica that a rank belongs to."""
    return plan.mesh.coordinate(rank, plan.mesh.groups["ATTN_DP"])


def run(job: Job, rank: int, store: Store) -> list[Tensor]:
    """Each step's logits of the rank's own sequences. Memory begins as NaN."""
    plan = job.plan
    communicators = connect_mesh(plan, rank, store, TIMEOUT)
    executor = Executor(plan, rank, Shards(plan, job.tensors, rank), communicators)
    executor.arena.fill_(0xFF)
    for group in plan.kv_cache.groups:
        executor.pools.group(group.name).fill_(torch.nan)
    mine = [batches[replica_of(plan, rank)] for batches in job.steps]
    return [executor.forward(batch)[: batch.num_sequences].clone() for batch in mine]


def main(folder: Path, rank: int, world: int) -> None:
    """Run the folder's jobs in order; write `<number>-<rank>.pt` for each."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    store = FileStore(str(folder / "store"), world)
    for number in range(len(list(folder.glob("*.job")))):
        job: Job = pickle.loads((folder / f"{number}.job").read_bytes())
        if rank < job.plan.mesh.world:
            logits = run(job, rank, PrefixStore(str(number), store))
            torch.save(logits, folder / f"{number}-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
