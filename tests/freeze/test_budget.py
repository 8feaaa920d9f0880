"""Memory that a plan takes is summed at build, and a byte too much is refused with the sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny_plan import tiny_plan

from tscompile.cost.topology import Topology, find_topology
from tscompile.freeze import budget as freezing
from tscompile.freeze.budget import check_budget
from tscompile.ir.errors import DeviceMemoryError
from tsruntime.artifact.budget import SPARE_BYTES, budget
from tsruntime.artifact.launches import Launches

LAUNCHES = Launches("sm_90", (), (), {}, 0, scratch_bytes=3_000, counter_bytes=500)


def given_capacity(monkeypatch: pytest.MonkeyPatch, capacity: int) -> None:
    topology = replace(find_topology("h200-nvlink-8"), capacity=capacity)

    def found(name: str) -> Topology:
        return topology

    monkeypatch.setattr(freezing, "find_topology", found)


def test_a_byte_too_much_is_refused_with_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny_plan()
    taken = budget(plan, LAUNCHES)
    parts = (taken.weights, taken.kv_cache, taken.arena, taken.draws, 3_500, SPARE_BYTES)
    assert taken.total == sum(parts)
    given_capacity(monkeypatch, taken.total)
    check_budget(plan, LAUNCHES)
    given_capacity(monkeypatch, taken.total - 1)
    with pytest.raises(DeviceMemoryError) as refusal:
        check_budget(plan, LAUNCHES)
    for said in ("a rank takes 1.07 GB (weights", "state of draws", "has 1.07 GB"):
        assert said in refusal.value.message


def test_what_slots_are_drawn_with_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a vocabulary of 150,000, over a megabyte of counts and biases a slot."""
    plan = replace(tiny_plan(), vocab_size=150_000)
    fewer = budget(plan, LAUNCHES)
    limits = replace(plan.limits, max_batch=plan.limits.max_batch + 100)
    more = budget(replace(plan, limits=limits), LAUNCHES)
    assert more.total - fewer.total == 100 * (2 * 4 * 150_000 + 4)
    given_capacity(monkeypatch, fewer.total)
    check_budget(plan, LAUNCHES)
    with pytest.raises(DeviceMemoryError):
        check_budget(replace(plan, limits=limits), LAUNCHES)
