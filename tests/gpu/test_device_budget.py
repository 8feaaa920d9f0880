"""A plan that runs takes no more of a GPU than was budgeted for it, and starts with no less."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import TinyHf
from deployments import build, command, recipe

from tsruntime.artifact.budget import SPARE_BYTES, budget
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor.batch import idle_batch
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.device import DeviceExecutor

pytestmark = pytest.mark.gpu

SECTIONS: dict[str, Any] = {
    "dtype": "bfloat16",
    "target": {"device": "cuda", "arch": "sm_90", "topology": "h200-nvlink-8"},
    "limits": {"max_model_len": 512, "max_batch": 256, "token_budget": 2048},
    "buckets": {"decode": [1, 64, 256], "extend": [[512, 64], [2048, 256]]},
    "kv_cache": {"page_size": 16, "memory": "4GB"},
}


@pytest.fixture(scope="module")
def artifact(tiny_hf: TinyHf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("budget"), recipe(tiny_hf("qwen3"), **SECTIONS))


def test_a_plan_that_runs_stays_within_its_budget(artifact: Path) -> None:
    plan = load_plan(artifact)
    code = load_code(artifact, read_manifest(artifact), plan)
    taken = budget(plan, code.launches)
    torch.set_grad_enabled(False)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    before, _ = torch.cuda.mem_get_info(0)
    weights = WeightStore(artifact, plan, 0, "cuda:0")
    executor = DeviceExecutor(plan, 0, weights, lambda _: LocalCommunicator(), code)
    for program in range(len(plan.programs)):
        executor.run(idle_batch(program, len(plan.kv_cache.groups)))
    torch.cuda.synchronize()
    after, _ = torch.cuda.mem_get_info(0)
    used = before - after
    print(f"{used / 1e9:.3f} of {taken.sums()}")
    assert taken.total - SPARE_BYTES <= used <= taken.total


def test_a_gpu_with_too_little_free_memory_is_refused_with_the_sums(artifact: Path) -> None:
    plan = load_plan(artifact)
    needed = budget(plan, load_code(artifact, read_manifest(artifact), plan).launches)
    gc.collect()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(0)
    held = torch.empty(free - needed.total + (64 << 20), dtype=torch.uint8, device="cuda")
    done = command("tsrun", artifact, "--bench")
    del held
    torch.cuda.empty_cache()
    assert done.returncode == 1
    assert "TS0602" in done.stderr
    assert f"the plan takes {needed.sums()}, but GPU 0 has" in done.stderr
