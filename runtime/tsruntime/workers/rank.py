"""What one rank process does: load, meet the others, bind, then serve or follow."""

from __future__ import annotations

import gc
import hashlib
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.distributed import (
    FileStore,  # pyright: ignore[reportPrivateImportUsage]
    HashStore,  # pyright: ignore[reportPrivateImportUsage]
    Store,  # pyright: ignore[reportPrivateImportUsage]
)

from tskernels.device import cuda_arch
from tskernels.platform import cpu_arch, set_num_threads
from tskernels.registry import REGISTRY
from tsruntime.artifact.errors import TargetMismatch
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.proof.load import load_certificate
from tsruntime.artifact.schema import Plan, Target
from tsruntime.artifact.weights import WeightStore
from tsruntime.engine.channel import Channel, Followers, NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.loop import Loop, follow
from tsruntime.engine.messages import Ready
from tsruntime.executor.batch import idle_batch
from tsruntime.executor.bind import VIEW_PIN
from tsruntime.executor.choice import ProgramChoice
from tsruntime.executor.collectives import (
    GlooCommunicator,
    connect,
    connect_mesh,
)
from tsruntime.executor.device import DeviceExecutor
from tsruntime.executor.errors import PeerLostError
from tsruntime.executor.executor import Executor
from tsruntime.executor.loading import DeviceWeights
from tsruntime.executor.output import Runner
from tsruntime.workers.errors import PlanMismatch, ReplicasNotServed
from tsruntime.workers.settings import PEER_LOST_EXIT, RankSettings

START_TIMEOUT = timedelta(minutes=30)
"""How long ranks wait for one another while they load; the launcher ends them if one dies."""

SILENCE_TIMEOUT = timedelta(seconds=60)
"""How long a rank waits for another one afterwards; heartbeats come far more often."""


def run(settings: RankSettings, commands: Connection | None, verified: Callable[[], None]) -> int:
    """Load the artifact and work until told to stop; the exit code.

    `verified` returns once the weight files are known to be whole, or raises.
    """
    set_num_threads(settings.threads)
    torch.set_grad_enabled(False)
    try:
        _work(settings, commands, verified)
    except PeerLostError:
        return PEER_LOST_EXIT  # the launcher says which rank is gone, and why
    return 0


def check_target(path: Path, target: Target, rank: int = 0) -> None:
    """`TargetMismatch` unless the rank's CPU or GPU is what the plan was built for."""
    built = f"{target.device} {target.arch}"
    here = f"cpu {cpu_arch()}" if target.device == "cpu" else _gpu(rank)
    if built != here:
        raise TargetMismatch(path, built, here)


def _gpu(index: int) -> str:
    count = torch.cuda.device_count()
    return f"cuda {cuda_arch(index)}" if index < count else f"{count} GPUs"


def check_replicas(path: Path, plan: Plan) -> None:
    """`ReplicasNotServed` if attention is replicated: every replica needs a scheduler."""
    replicas = plan.mesh.size(plan.mesh.groups.get("ATTN_DP", ()))
    if replicas > 1:
        raise ReplicasNotServed(
            f"the plan has {replicas} attention replicas, and the engine serves 1",
            remedy="build with parallel.attn_tp equal to parallel.world",
            where=str(path),
        )


def pins(plan: Plan) -> set[str]:
    """Names of the kernels that the plan's programs run."""
    return {op.pin for program in plan.programs for op in program.ops} - {VIEW_PIN}


def compare_plans(everyone: GlooCommunicator, plan_file: Path) -> None:
    """`PlanMismatch` unless every rank has the same bytes in its `plan.json`; all must call."""
    digest = hashlib.sha256(plan_file.read_bytes()).digest()
    found = torch.empty((everyone.size, len(digest)), dtype=torch.uint8)
    everyone.all_gather(found, torch.frombuffer(bytearray(digest), dtype=torch.uint8))
    digests = [bytes(row.numpy()).hex() for row in found]
    for rank, other in enumerate(digests):
        if other != digests[0]:
            raise PlanMismatch(
                f"rank 0 has plan {digests[0][:12]}, rank {rank} has plan {other[:12]}",
                remedy="give every rank the same artifact",
                where=str(plan_file),
            )


def _work(
    settings: RankSettings, commands: Connection | None, verified: Callable[[], None]
) -> None:
    plan = _load(Path(settings.artifact), settings.rank)
    if settings.world == 1:
        executor = _bind(settings, plan, HashStore())
        verified()
        _warm(executor)
        _serve(settings, executor, commands, NoFollowers())
        return
    store = FileStore(str(Path(settings.rendezvous) / "store"), settings.world)
    start = connect(store, "start", settings.rank, settings.world, START_TIMEOUT)
    compare_plans(start, Path(settings.artifact) / "plan.json")
    executor = _bind(settings, plan, store)
    channel = Channel(connect(store, "step", settings.rank, settings.world, SILENCE_TIMEOUT))
    verified()
    start.barrier()
    _warm(executor)
    if settings.rank == 0:
        shutil.rmtree(settings.rendezvous, ignore_errors=True)
        _serve(settings, executor, commands, channel)
    else:
        follow(executor, channel)


def _load(path: Path, rank: int) -> Plan:
    plan = load_plan(path)
    check_target(path, plan.target, rank)
    check_replicas(path, plan)
    if not pins(plan) <= set(REGISTRY.names()):
        REGISTRY.load_plugins()
    if rank == 0:
        # once: the others hold the same plan, or `compare_plans` refuses
        check_proof(plan, load_certificate(path))
    return plan


def _bind(settings: RankSettings, plan: Plan, store: Store) -> Runner:
    path, rank = Path(settings.artifact), settings.rank
    communicators = connect_mesh(plan, rank, store, SILENCE_TIMEOUT)
    if plan.target.device == "cpu":
        return Executor(plan, rank, WeightStore(path, plan, rank), communicators)
    code = load_code(path, read_manifest(path), plan, settings.trusted)
    weights = DeviceWeights(path, plan, rank, f"cuda:{rank}")
    return DeviceExecutor(plan, rank, weights, communicators, code, rank)


def _warm(executor: Runner) -> None:
    """Run the smallest program on padding alone: pages in the weights, starts kernel threads.

    What has been loaded stays, so the collector need not look at it between steps.
    """
    choice = ProgramChoice(executor.plan.programs)
    executor.run(idle_batch(choice.choose(0, 0), len(executor.plan.kv_cache.groups)))
    gc.freeze()
    gc.enable()


def _serve(
    settings: RankSettings, executor: Runner, commands: Connection | None, followers: Followers
) -> None:
    assert commands is not None, "rank 0 has the front end's pipe"
    with Engine(executor.plan, executor, followers) as engine:
        commands.send([Ready(time.monotonic() - settings.started)])
        Loop(engine, commands, followers).run()
