"""A plan is refused, with its sums, where the GPU has too little free memory for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_plan import tiny_plan

from tsruntime.artifact.budget import SPARE_BYTES, plan_draw_bytes, pool_bytes
from tsruntime.artifact.errors import TargetMismatch
from tsruntime.artifact.launches import Launches
from tsruntime.artifact.schema import Target
from tsruntime.artifact.weights import weight_bytes
from tsruntime.executor.device import check_memory
from tsruntime.executor.errors import DeviceTooSmall
from tsruntime.workers.rank import check_target


def test_the_sums_are_told_and_a_byte_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny_plan()
    launches = Launches("sm_90", (), (), {}, 0, scratch_bytes=3_000, counter_bytes=500)
    arena = max(program.arena_bytes for program in plan.programs)
    counted = 2 * 4 * plan.limits.max_batch * plan.vocab_size
    assert plan_draw_bytes(plan) > counted
    needed = weight_bytes(plan) + pool_bytes(plan.kv_cache) + arena + 3_500 + SPARE_BYTES
    needed += plan_draw_bytes(plan)
    free = {1: needed}

    def mem_get_info(index: int) -> tuple[int, int]:
        return free[index], 2 * needed

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    check_memory(plan, launches, 1)
    free[1] -= 1
    with pytest.raises(DeviceTooSmall) as caught:
        check_memory(plan, launches, 1)
    assert "GPU 1 has 1.07 free" in caught.value.message
    assert "driver, graphs and libraries 1.07" in caught.value.message


def test_a_rank_is_held_against_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities = {0: (8, 0), 1: (9, 0)}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)
    target = Target("cuda", "sm_90", "h200-nvlink-8")
    check_target(Path("artifact"), target, 1)
    for rank, offered in ((0, "cuda sm_80"), (2, "2 GPUs")):
        with pytest.raises(TargetMismatch, match=offered):
            check_target(Path("artifact"), target, rank)
