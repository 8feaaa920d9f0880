"""A plan that runs takes no more of a GPU than was budgeted for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import TinyHf
from deployments import build, recipe

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


def test_a_plan_that_runs_stays_within_its_budget(tiny_hf: TinyHf, tmp_path: Path) -> None:
    artifact = build(tmp_path, recipe(tiny_hf("qwen3"), **SECTIONS))
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
