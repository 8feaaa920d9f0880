"""Rank processes: they come up, serve, and end together, however one of them or we end."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import psutil
import pytest
from ranks_in_threads import TIMEOUT, on_ranks
from tiny_artifact import write_artifact, write_tiny_artifact
from tiny_plan import Sizes, tiny_greedy, tiny_plan, whole_weights
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

from tsruntime.artifact.errors import TargetMismatch
from tsruntime.artifact.schema import Op, Target
from tsruntime.engine.messages import Event, Shutdown, Submit, TokenOutput
from tsruntime.executor.collectives import connect
from tsruntime.sampling.params import SamplingParams
from tsruntime.workers.errors import PlanMismatch, RankFailed, ReplicasNotServed
from tsruntime.workers.launch import Workers, launch
from tsruntime.workers.rank import check_replicas, check_target, compare_plans
from tsruntime.workers.settings import RankSettings

WHOLE = whole_weights()
READY_SECONDS = 120


def generate(workers: Workers, prompt: list[int], count: int) -> list[int]:
    params = SamplingParams(max_tokens=count, temperature=0.0)
    workers.connection.send([Submit(1, tuple(prompt), params)])
    got = list[int]()
    while len(got) < count:
        assert workers.connection.poll(20), f"{len(got)} of {count} tokens"
        events: list[Event] = workers.connection.recv()
        got += [event.token for event in events if isinstance(event, TokenOutput)]
    return got


def gone(pids: list[int], seconds: float) -> bool:
    """Whether none of the processes runs after at most `seconds`."""
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """A world of one, ready."""
    with launch(write_tiny_artifact(tmp_path_factory.mktemp("one"), 1)) as workers:
        assert workers.wait_ready(READY_SECONDS).seconds > 0
        yield workers


def test_the_launcher_needs_no_torch() -> None:
    code = "import sys, tsruntime.workers.launch as _; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_one_rank_serves(alone: Workers) -> None:
    assert generate(alone, [5, 6, 7], 9) == tiny_greedy(WHOLE, [5, 6, 7], 9)
    assert alone.poll_failure() is None


def test_an_interrupt_is_the_launchers_affair(alone: Workers) -> None:
    os.kill(alone.pids[0], signal.SIGINT)
    assert generate(alone, [1], 4) == tiny_greedy(WHOLE, [1], 4)


def test_a_rank_runs_in_a_process_group_of_its_own(alone: Workers) -> None:
    assert os.getpgid(alone.pids[0]) != os.getpgid(0)


def test_a_drained_rank_ends_well(alone: Workers) -> None:
    alone.connection.send([Shutdown(drain=True)])
    assert wait(alone.sentinels, 10)
    assert gone(alone.pids, 10)
    assert alone.poll_failure() is None


def test_three_ranks_serve_and_end_when_one_is_killed(tmp_path: Path) -> None:
    with launch(write_tiny_artifact(tmp_path, 3)) as workers:
        workers.wait_ready(READY_SECONDS)
        assert generate(workers, [5, 6, 7], 9) == tiny_greedy(WHOLE, [5, 6, 7], 9)
        pids = workers.pids
        os.kill(pids[2], signal.SIGSTOP)  # hangs, and cannot notice anything by itself
        os.kill(pids[1], signal.SIGKILL)
        assert wait(workers.sentinels, 5)
        assert gone(pids[:2], 5), "rank 0 ends by itself"
        assert alive(pids[2])
        line = f"rank 1 (pid {pids[1]}) was killed by SIGKILL"
        assert workers.poll_failure() == line
        assert gone(pids, 1), "the rank that hangs is ended"
        assert workers.poll_failure() == line


def test_a_rank_that_cannot_load_says_why(tmp_path: Path) -> None:
    stranger = Target("cpu", "vax", "host")
    artifact = write_artifact(tmp_path, replace(tiny_plan(), target=stranger))
    with launch(artifact) as workers, pytest.raises(RankFailed, match="built for cpu vax"):
        workers.wait_ready(READY_SECONDS)


def test_a_plan_edited_by_hand_is_refused_though_its_seal_is_whole(tmp_path: Path) -> None:
    plan = tiny_plan(Sizes(world=3))

    def edited(op: Op) -> Op:
        reduces = op.op == "all_reduce"
        return replace(op, attributes={**op.attributes, "reduce": "max"}) if reduces else op

    programs = tuple(replace(p, ops=tuple(map(edited, p.ops))) for p in plan.programs)
    artifact = write_artifact(tmp_path, replace(plan, programs=programs))
    with launch(artifact) as workers, pytest.raises(RankFailed) as caught:
        workers.wait_ready(READY_SECONDS)
    assert "rank 0 failed: error[TS0507]" in str(caught.value)
    assert "rebuild the artifact; never edit plan.json" in str(caught.value)


def test_a_rank_with_another_plan_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = Sizes(world=3)
    artifact = write_artifact(tmp_path / "one", tiny_plan(sizes))
    other = write_artifact(tmp_path / "other", tiny_plan(replace(sizes, pages=40)))

    def settings(**given: Any) -> RankSettings:
        mine = RankSettings(**given)
        return replace(mine, artifact=str(other)) if mine.rank == 1 else mine

    monkeypatch.setattr("tsruntime.workers.launch.RankSettings", settings)
    with launch(artifact) as workers, pytest.raises(RankFailed) as caught:
        workers.wait_ready(READY_SECONDS)
    told = r"error\[TS0612\]: .*: rank 0 has plan (\w+), rank 1 has plan (\w+)"
    found = re.search(told, str(caught.value))
    assert found is not None, str(caught.value)
    digests = [
        hashlib.sha256((path / "plan.json").read_bytes()).hexdigest() for path in (artifact, other)
    ]
    assert found.groups() == tuple(digest[:12] for digest in digests)


LAUNCHER = """
import sys, time
from pathlib import Path
from tsruntime.workers.launch import launch
workers = launch(Path(sys.argv[1]))
workers.wait_ready({seconds})
print(*workers.pids, flush=True)
time.sleep(60)
"""


def test_ranks_end_when_their_launcher_is_killed(tmp_path: Path) -> None:
    artifact = write_tiny_artifact(tmp_path, 1)
    code = LAUNCHER.format(seconds=READY_SECONDS)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(artifact)], stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
        assert len(pids) == 1
        assert all(alive(pid) for pid in pids)
        launcher.kill()
        assert gone(pids, 5)


def test_ranks_with_different_plans_refuse_to_run(tmp_path: Path) -> None:
    def work(rank: int, store: Store) -> None:
        path = tmp_path / f"{rank}.json"
        path.write_bytes(b"same" if rank != 1 else b"other")
        everyone = connect(store, "start", rank, 3, TIMEOUT)
        with pytest.raises(
            PlanMismatch, match="rank 0 has plan 0967115f2813, rank 1 has plan d9298a10d1b0"
        ):
            compare_plans(everyone, path)
        path.write_bytes(b"same")
        compare_plans(everyone, path)

    on_ranks(3, work)


def test_a_plan_for_other_hardware_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetMismatch, match="built for cuda sm_90"):
        check_target(tmp_path, Target("cuda", "sm_90", "h200"))
    check_target(tmp_path, tiny_plan().target)


def test_a_plan_with_attention_replicas_is_refused(tmp_path: Path) -> None:
    plan = tiny_plan(Sizes(world=3))
    check_replicas(tmp_path, plan)
    groups = {**plan.mesh.groups, "ATTN_TP": (), "ATTN_DP": ("a",)}
    with pytest.raises(ReplicasNotServed, match="3 attention replicas, and the engine serves 1"):
        check_replicas(tmp_path, replace(plan, mesh=replace(plan.mesh, groups=groups)))
