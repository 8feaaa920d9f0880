"""Real processes over gloo at world 2, 3 and 4: logits of every step against the eager module.

The processes are started once, and run all cases.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from batches import run_whole, worst_position
from compile_requests import random_model
from drawn_plans import CHUNK, Case, Dims, Setup
from gloo_rank import Job, replica_of
from torch import Tensor

from tscompile.ir.mesh import ParallelSizes
from tscompile.models import CausalLM
from tscompile.models.annotations import checkpoint_names
from tscompile.passes.pipeline import compile_plan
from tscompile.simulate.session import Session
from tskernels.platform import cpu_arch
from tsruntime.artifact.schema import Target

LIMIT = 1e-9
WORLD = 4
TESTS = Path(__file__).parents[1]

SETUPS = (
    Setup("llama", ParallelSizes(2, 2, 2), Dims(layers=2, queries=2)),
    Setup("qwen2", ParallelSizes(2, 1, 2), Dims(vocabulary=31)),
    Setup("deepseek", ParallelSizes(2, 2, 1, 1, 2), Dims(layers=2, bias=True)),
    Setup("qwen3", ParallelSizes(3, 3, 1), Dims(hidden=2, bias=True)),
    Setup("mistral", ParallelSizes(3, 1, 3), Dims(layers=2, kv_heads=2)),
    Setup("qwen3_moe", ParallelSizes(3, 3, 3, 1, 3), Dims(layers=2)),
    Setup("llama3", ParallelSizes(4, 2, 4), Dims(shared=2, bias=True, decodes=True)),
    Setup("qwen3", ParallelSizes(4, 4, 2), Dims(layers=2, vocabulary=37)),
    Setup("qwen2", ParallelSizes(4, 2, 2), Dims(kv_heads=2, width=3)),
    Setup("qwen3_moe", ParallelSizes(4, 1, 2, 2, 2), Dims(layers=2, experts=2)),
    Setup("deepseek", ParallelSizes(4, 2, 1, 1, 4), Dims(layers=2)),
    Setup("qwen3_moe", ParallelSizes(4, 4, 2, 4, 1), Dims(bias=True)),
)


def work(setup: Setup, seed: int) -> Case:
    """Two prompts, one, none, two ...; then decodes, a chunk beside a decode, and one lone row."""
    replicas = setup.replicas
    prompts = [((5, 3), (4,), ())[(seed + replica) % 3] for replica in range(replicas)]
    prompts[0] = prompts[0] or (6, 1)
    lone = (1, *(0,) * (replicas - 1))
    return Case(setup, seed, tuple(prompts), ((2,) * replicas, (CHUNK,) * replicas, lone))


def job(setup: Setup, seed: int) -> tuple[Job, CausalLM]:
    """What the ranks get, and the unsharded module of the same weights."""
    request = replace(setup.request(), target=Target("cpu", cpu_arch(), "cpu-gloo"))
    model = random_model(request.model, torch.float64, seed)
    assert isinstance(model, torch.nn.Module)
    names = checkpoint_names(model)
    tensors = {names[id(p)]: p.detach() for p in model.parameters()}
    plan = compile_plan(request).plan
    sessions = [Session(plan, np.random.default_rng(seed)) for _ in range(setup.replicas)]
    return Job(plan, tensors, tuple(work(setup, seed).batches(plan, sessions))), model


@pytest.fixture(scope="module")
def jobs() -> tuple[tuple[Job, CausalLM], ...]:
    return tuple(job(setup, seed) for seed, setup in enumerate(SETUPS))


@pytest.fixture(scope="module")
def ran(
    jobs: tuple[tuple[Job, CausalLM], ...], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[int, int], list[Tensor]]:
    """Each step's logits by case and rank."""
    folder = tmp_path_factory.mktemp("gloo")
    for number, (made, _) in enumerate(jobs):
        (folder / f"{number}.job").write_bytes(pickle.dumps(made))
    run_ranks(folder)
    return {
        (number, rank): cast("list[Tensor]", torch.load(folder / f"{number}-{rank}.pt"))
        for number, (made, _) in enumerate(jobs)
        for rank in range(made.plan.mesh.world)
    }


def run_ranks(folder: Path) -> None:
    """Start all rank processes on a folder, and wait until they have done every job."""
    paths = os.pathsep.join(path for path in (str(TESTS), *sys.path) if path)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths}
    processes = [
        subprocess.Popen(
            [sys.executable, str(TESTS / "gloo_rank.py"), str(folder), str(rank), str(WORLD)],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        for rank, process in enumerate(processes):
            _, said = process.communicate(timeout=240)
            assert process.returncode == 0, f"rank {rank}: {said}"
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize("number", range(len(SETUPS)))
def test_every_step_gives_the_eager_modules_logits(
    number: int,
    jobs: tuple[tuple[Job, CausalLM], ...],
    ran: Mapping[tuple[int, int], list[Tensor]],
) -> None:
    made, model = jobs[number]
    for rank in range(made.plan.mesh.world):
        steps = [batches[replica_of(made.plan, rank)] for batches in made.steps]
        texts: dict[int, list[int]] = {}
        for batch, logits in zip(steps, ran[number, rank], strict=True):
            assert len(logits) == batch.num_sequences
            ends = batch.query_starts.tolist()
            for row, slot in enumerate(batch.slots.tolist()):
                text = texts.setdefault(slot, [])
                text += batch.token_ids[ends[row] : ends[row + 1]].tolist()
                expected = run_whole(model, text, torch.float64)[-1:]
                assert worst_position(logits[row : row + 1], expected) < LIMIT
