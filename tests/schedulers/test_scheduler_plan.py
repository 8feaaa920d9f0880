"""The plan's layout, and how long its arrays live."""

from __future__ import annotations

import numpy as np
import pytest
from small_schedulers import commit_ones, run_all, small_scheduler

from tsschedulers import CacheGroupConfig, GroupPlan, Plan


def test_layout_of_a_mixed_step() -> None:
    scheduler = small_scheduler(prefix_cache=False)
    scheduler.submit([1, 2, 3], 5)
    commit_ones(scheduler, scheduler.plan())
    scheduler.submit([4] * 70, 5)
    plan = scheduler.plan()
    assert (plan.num_sequences, plan.num_tokens, plan.num_decodes) == (2, 64, 1)
    assert plan.query_starts.tolist() == [0, 1, 64]
    assert plan.seq_lens.tolist() == [4, 63]
    assert plan.positions.tolist() == [3, *range(63)]
    assert plan.token_ids.tolist() == [9, *[4] * 63]
    assert plan.samples.tolist() == [1, 0]
    (group,) = plan.groups
    table = {(slot, index): page for slot, index, page in group.table_deltas.tolist()}
    second = plan.admitted[0].slot
    assert sorted(table) == [(second, index) for index in range(18)], "the whole prompt's pages"
    expected = [table[second, position // 4] * 4 + position % 4 for position in range(63)]
    assert group.slot_mapping[1:].tolist() == expected
    assert 0 not in table.values(), "the null page is nobody's"


def test_a_token_in_flight_is_unknown() -> None:
    scheduler = small_scheduler()
    scheduler.submit([1, 2, 3], 5)
    first, second = scheduler.plan(), scheduler.plan()
    assert second.token_ids.tolist() == [-1]
    assert second.positions.tolist() == [3]
    third = scheduler.plan()
    assert (third.empty, third.reason, third.step) == (True, "in_flight", 0)
    commit_ones(scheduler, first)
    assert scheduler.plan().token_ids.tolist() == [-1]


def test_no_more_tokens_are_planned_than_are_wanted() -> None:
    scheduler = small_scheduler()
    scheduler.submit([1, 2, 3], 1)
    scheduler.plan()
    assert scheduler.plan().reason == "in_flight"


def test_arrays_that_are_held_stay_as_they_were() -> None:
    scheduler = small_scheduler()
    scheduler.submit([1, 2, 3], 20)
    plan = scheduler.plan()
    held, copy = plan.token_ids, plan.token_ids.tolist()
    commit_ones(scheduler, plan)
    del plan
    run_all(scheduler)
    assert held.tolist() == copy
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 1


def _views(plan: Plan) -> dict[str, object]:
    return {
        "slice": plan.token_ids[1:],
        "slice of a slice": plan.positions[1:][::2],
        "memoryview": memoryview(plan.seq_lens),  # pyright: ignore[reportArgumentType]
        "column of a group": plan.groups[0].table_deltas[:, 2],
        "group": plan.groups[0],
    }


@pytest.mark.parametrize("kind", ["slice", "slice of a slice", "memoryview", "column of a group",
                                  "group"])  # fmt: skip
def test_views_of_arrays_keep_them_too(kind: str) -> None:
    scheduler = small_scheduler()
    scheduler.submit([1, 2, 3], 20)
    plan = scheduler.plan()
    held = _views(plan)[kind]
    commit_ones(scheduler, plan)
    del plan
    before = _bytes(held)
    run_all(scheduler)
    assert _bytes(held) == before


def _bytes(held: object) -> bytes:
    return np.asarray(held.slot_mapping if isinstance(held, GroupPlan) else held).tobytes()


def test_what_nobody_holds_is_used_again() -> None:
    scheduler = small_scheduler()
    scheduler.submit([1, 2, 3], 100)
    addresses: set[int] = set()
    for _ in range(60):
        plan = scheduler.plan()
        addresses.add(plan.slots.ctypes.data)
        commit_ones(scheduler, plan)
    assert len(addresses) <= 3


def test_new_pages_are_zeroed_where_the_group_says_so() -> None:
    groups = (CacheGroupConfig("a", 33), CacheGroupConfig("b", 33, zero_pages=True))
    scheduler = small_scheduler(groups=groups)
    scheduler.submit([1] * 9, 5)
    plan = scheduler.plan()
    assert plan.groups[0].zero_pages.size == 0
    assert plan.groups[1].zero_pages.tolist() == plan.groups[1].table_deltas[:, 2].tolist()
    assert plan.groups[1].zero_pages.size == 3
