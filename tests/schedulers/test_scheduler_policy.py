"""What the scheduler promises: order, budget, prefixes, windows, forks, and the plan's layout."""

from __future__ import annotations

from typing import TypedDict, Unpack

import numpy as np
import pytest

from tsschedulers import CacheGroupConfig, Config, GroupPlan, Plan, Scheduler
from tsschedulers.reference_books import Sizes
from tsschedulers.side_by_side import SideBySide


class Options(TypedDict, total=False):
    """Of `Config`, where they differ from those below."""

    page_size: int
    max_batch: int
    max_model_len: int
    token_budget: int
    tokens_per_step: int
    prefix_cache: bool
    watermark: float
    ageing: int
    prefix_hash_bits: int


def _scheduler(
    pages: int = 64,
    groups: tuple[CacheGroupConfig, ...] | None = None,
    **options: Unpack[Options],
) -> Scheduler:
    sizes: Options = {
        "page_size": 4,
        "max_batch": 4,
        "max_model_len": 256,
        "token_budget": 64,
        "watermark": 0.0,
    }
    sizes.update(options)
    chosen = groups or (CacheGroupConfig("full", pages + 1),)
    return Scheduler(
        Config(
            page_size=sizes["page_size"],
            max_batch=sizes["max_batch"],
            max_model_len=sizes["max_model_len"],
            token_budget=sizes["token_budget"],
            groups=chosen,
            tokens_per_step=sizes.get("tokens_per_step", 1),
            prefix_cache=sizes.get("prefix_cache", True),
            watermark=sizes["watermark"],
            ageing=sizes.get("ageing", 64),
            prefix_hash_bits=sizes.get("prefix_hash_bits", 32),
        )
    )


def _commit(scheduler: Scheduler, plan: Plan, *, ends: bool = False) -> None:
    slots = plan.slots[plan.samples == 1]
    scheduler.commit(plan.step, slots, np.full(slots.size, 9, np.int32), np.full(slots.size, ends))


def _run(scheduler: Scheduler) -> list[Plan]:
    """All plans until nothing is left."""
    plans: list[Plan] = []
    while not (plan := scheduler.plan()).empty:
        _commit(scheduler, plan)
        plans.append(plan)
    assert plan.reason == "idle"
    return plans


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"page_size": 0}, "page_size is 0, which must be at least 1"),
        ({"max_batch": -3}, "max_batch is -3, which must be at least 1"),
        ({"max_model_len": 1}, "max_model_len is 1, which must be at least 2"),
        ({"token_budget": 7}, "token_budget is 7, but max_batch 4 x .* need 8"),
        ({"tokens_per_step": 16}, "token_budget is 64, but max_batch 4 x tokens_per_step 16 .* 68"),
        ({"watermark": 1.5}, r"watermark must be in \[0, 1\)"),
        ({"prefix_hash_bits": 33}, "prefix_hash_bits is 33, which must be at most 32"),
        ({"ageing": 0}, "ageing is 0, which must be at least 1"),
    ],
)
def test_a_bad_size_is_refused(options: Options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _scheduler(**options)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (CacheGroupConfig("a", 1), "group 'a': pages is 1, which must be at least 2"),
        (CacheGroupConfig("a", 9, 1), "group 'a': window is 1, which must be at least 2"),
        (CacheGroupConfig("a", 9, 16), "its window of 16 tokens .* token_budget 64 need 23"),
    ],
)
def test_a_bad_group_is_refused(group: CacheGroupConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _scheduler(groups=(group,))


def test_a_name_is_one_groups() -> None:
    with pytest.raises(ValueError, match="group 'a' is named twice"):
        _scheduler(groups=(CacheGroupConfig("a", 9), CacheGroupConfig("a", 9)))


@pytest.mark.parametrize(
    ("tokens", "new", "message"),
    [
        ([], 1, "the prompt is empty"),
        ([1, 2], 0, "max_new_tokens is 0, which must be at least 1"),
        ([1, -2], 1, "token -2 is negative"),
        ([1] * 250, 7, r"250 prompt tokens \+ max_new_tokens 7 = 257 exceed max_model_len 256"),
        ([1] * 100, 30, "= 130 need 33 pages of group 'full', which has 32"),
    ],
)
def test_what_can_never_run_is_refused(tokens: list[int], new: int, message: str) -> None:
    scheduler = _scheduler(32)
    with pytest.raises(ValueError, match=message):
        scheduler.submit(tokens, new)
    assert scheduler.plan().reason == "idle"


def test_tokens_may_be_an_array() -> None:
    scheduler = _scheduler()
    scheduler.submit(np.array([5, 6, 7], np.int32), 1)
    assert scheduler.plan().token_ids.tolist() == [5, 6, 7]


# The plan


def test_layout_of_a_mixed_step() -> None:
    scheduler = _scheduler(prefix_cache=False)
    scheduler.submit([1, 2, 3], 5)
    _commit(scheduler, scheduler.plan())
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
    scheduler = _scheduler()
    scheduler.submit([1, 2, 3], 5)
    first, second = scheduler.plan(), scheduler.plan()
    assert second.token_ids.tolist() == [-1]
    assert second.positions.tolist() == [3]
    third = scheduler.plan()
    assert (third.empty, third.reason, third.step) == (True, "in_flight", 0)
    _commit(scheduler, first)
    assert scheduler.plan().token_ids.tolist() == [-1]


def test_no_more_tokens_are_planned_than_are_wanted() -> None:
    scheduler = _scheduler()
    scheduler.submit([1, 2, 3], 1)
    scheduler.plan()
    assert scheduler.plan().reason == "in_flight"


def test_arrays_that_are_held_stay_as_they_were() -> None:
    scheduler = _scheduler()
    scheduler.submit([1, 2, 3], 20)
    plan = scheduler.plan()
    held, copy = plan.token_ids, plan.token_ids.tolist()
    _commit(scheduler, plan)
    del plan
    _run(scheduler)
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
    scheduler = _scheduler()
    scheduler.submit([1, 2, 3], 20)
    plan = scheduler.plan()
    held = _views(plan)[kind]
    _commit(scheduler, plan)
    del plan
    before = _bytes(held)
    _run(scheduler)
    assert _bytes(held) == before


def _bytes(held: object) -> bytes:
    return np.asarray(held.slot_mapping if isinstance(held, GroupPlan) else held).tobytes()


def test_what_nobody_holds_is_used_again() -> None:
    scheduler = _scheduler()
    scheduler.submit([1, 2, 3], 100)
    addresses: set[int] = set()
    for _ in range(60):
        plan = scheduler.plan()
        addresses.add(plan.slots.ctypes.data)
        _commit(scheduler, plan)
    assert len(addresses) <= 3


def test_new_pages_are_zeroed_where_the_group_says_so() -> None:
    groups = (CacheGroupConfig("a", 33), CacheGroupConfig("b", 33, zero_pages=True))
    scheduler = _scheduler(groups=groups)
    scheduler.submit([1] * 9, 5)
    plan = scheduler.plan()
    assert plan.groups[0].zero_pages.size == 0
    assert plan.groups[1].zero_pages.tolist() == plan.groups[1].table_deltas[:, 2].tolist()
    assert plan.groups[1].zero_pages.size == 3


# Order


def _order(scheduler: Scheduler) -> list[int]:
    """First tokens of requests in the order of their admission, one at a time."""
    return [int(plan.token_ids[0]) for plan in _run(scheduler)]


def test_lower_priorities_run_first_and_equal_ones_by_arrival() -> None:
    scheduler = _scheduler(max_batch=1)
    for name, priority in ((1, 5), (2, 0), (3, 5), (4, -1), (5, 0)):
        scheduler.submit([name], 1, priority=priority)
    assert _order(scheduler) == [4, 2, 5, 1, 3]


@pytest.mark.parametrize(("steps", "order"), [(7, [3, 2]), (9, [2, 3])])
def test_waiting_makes_up_for_priority(steps: int, order: list[int]) -> None:
    scheduler = _scheduler(max_batch=1, ageing=4)
    scheduler.submit([1], 30)
    _commit(scheduler, scheduler.plan())
    scheduler.submit([2], 1, priority=2)  # worth 8 steps
    for _ in range(steps):
        _commit(scheduler, scheduler.plan())
    scheduler.submit([3], 1)
    ran = [int(p.token_ids[0]) for p in _run(scheduler) if len(p.admitted) > 0]
    assert ran == order


def test_nobody_passes_an_earlier_request_that_does_not_fit() -> None:
    scheduler = _scheduler(16, prefix_cache=False)
    scheduler.submit([1] * 40, 4)
    _commit(scheduler, scheduler.plan())
    large, small = scheduler.submit([2] * 30, 1), scheduler.submit([3], 1)
    admitted = [a.handle for plan in _run(scheduler) for a in plan.admitted]
    assert admitted == [large, small]


def test_an_admission_leaves_the_watermark_unless_it_is_alone() -> None:
    scheduler = _scheduler(16, watermark=0.5, prefix_cache=False)
    scheduler.submit([1] * 60, 4)
    assert len(scheduler.plan().admitted) == 1, "alone it may have all"
    scheduler = _scheduler(16, watermark=0.5, prefix_cache=False)
    scheduler.submit([1] * 8, 4)
    scheduler.submit([2] * 28, 4)  # 7 of 14 pages: 8 have to stay free
    assert len(scheduler.plan().admitted) == 1


# Prefixes


def _cached(scheduler: Scheduler, tokens: list[int]) -> int:
    scheduler.submit(tokens, 1)
    (plan,) = _run(scheduler)
    return plan.admitted[0].cached_tokens


def test_a_hit_leaves_one_token_to_compute() -> None:
    scheduler = _scheduler()
    assert _cached(scheduler, [*range(16)]) == 0
    assert _cached(scheduler, [*range(16)]) == 12
    assert _cached(scheduler, [*range(17)]) == 16
    assert _cached(scheduler, [*range(10)]) == 8
    assert _cached(scheduler, [7, *range(1, 16)]) == 0


def test_the_answer_is_cached_too() -> None:
    scheduler = _scheduler()
    scheduler.submit([*range(6)], 7)
    _run(scheduler)
    assert _cached(scheduler, [*range(6), *[9] * 7, 1, 2]) == 12


def test_a_duplicate_of_a_published_page_stays_private() -> None:
    scheduler = _scheduler()
    scheduler.submit([*range(16)], 4)
    scheduler.submit([*range(16)], 4)
    _run(scheduler)
    stats = scheduler.stats()
    assert (stats.cached_pages[0], stats.free_pages[0]) == (4, 60)


def test_the_least_recently_used_goes_first() -> None:
    scheduler = _scheduler(12)
    prompts = [[seed, *range(15)] for seed in range(3)]
    for prompt in prompts:
        assert _cached(scheduler, prompt) == 0  # 4 pages each: the pool is full
    assert _cached(scheduler, prompts[0]) == 12
    assert _cached(scheduler, [7] * 16) == 0  # takes those of prompts[1]
    assert _cached(scheduler, prompts[2]) == 12
    assert _cached(scheduler, prompts[0]) == 12


def test_without_a_cache_nothing_is_kept() -> None:
    scheduler = _scheduler(prefix_cache=False)
    assert _cached(scheduler, [*range(16)]) == 0
    assert _cached(scheduler, [*range(16)]) == 0
    assert scheduler.stats().cached_pages[0] == 0


# Groups


def test_a_window_gives_old_pages_back() -> None:
    groups = (CacheGroupConfig("full", 65), CacheGroupConfig("window", 33, 8))
    scheduler = _scheduler(groups=groups, prefix_cache=False)
    scheduler.submit([1] * 4, 200)
    held: list[int] = []
    for _ in range(150):
        _commit(scheduler, scheduler.plan())
        held.append(32 - scheduler.stats().free_pages[1])
    assert max(held) == 3, "8 tokens touch at most 3 pages of 4"
    assert scheduler.stats().free_pages[0] == 64 - 39


def test_groups_agree_on_one_hit() -> None:
    # The window's pool holds few pages, so that it forgets the first prompt; the other does not.
    groups = (CacheGroupConfig("full", 65), CacheGroupConfig("window", 22, 8))
    scheduler = _scheduler(groups=groups, token_budget=56)
    assert _cached(scheduler, [*range(40)]) == 0
    assert _cached(scheduler, [*range(40)]) == 36
    for seed in range(100, 104):
        assert _cached(scheduler, [seed] * 40) == 0
    assert scheduler.stats().cached_pages[0] > 40
    assert _cached(scheduler, [*range(40)]) == 0


# Forks


def _sizes() -> Sizes:
    return Sizes(page_size=4, max_batch=4, max_model_len=64, token_budget=32, groups=((65, None),))


def test_a_fork_shares_pages_and_copies_the_open_one() -> None:
    world = SideBySide(_sizes())
    parent = world.submit([1] * 10, 20)
    world.plan()
    world.commit()
    child = world.fork(parent, 8)
    plan = world.plan()
    (admission,) = plan.admitted
    assert admission.handle == world.handles[child]
    assert admission.cached_tokens == 10, "two pages are shared, the third is copied"
    assert plan.groups[0].copies.shape == (1, 2)
    assert plan.query_starts.tolist() == [0, 1, 2], "only its last token is computed"
    world.commit()
    world.drain(world.bound())


def test_the_parent_of_a_fork_must_live() -> None:
    scheduler = _scheduler()
    parent = scheduler.submit([1, 2], 1)
    _run(scheduler)
    with pytest.raises(ValueError, match="the parent of the fork is not live"):
        scheduler.fork(parent, 1)


def test_several_tokens_a_step_are_planned_again_only_after_the_commit() -> None:
    scheduler = _scheduler(tokens_per_step=3)
    scheduler.submit([1, 2], 9)
    _commit(scheduler, scheduler.plan())
    plan = scheduler.plan()
    assert plan.positions.tolist() == [2, 3, 4]
    assert plan.token_ids.tolist() == [9, -1, -1]
    assert scheduler.plan().reason == "in_flight"
    slots = np.array([plan.slots[0]] * 2, np.int32)
    scheduler.commit(plan.step, slots, np.array([5, 6], np.int32), np.zeros(2, np.bool_))
    assert scheduler.plan().positions.tolist() == [4, 5, 6], "two of three were right"
