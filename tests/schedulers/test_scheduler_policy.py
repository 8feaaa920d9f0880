"""What the scheduler promises: order, prefixes, windows, forks."""

from __future__ import annotations

import numpy as np
import pytest
from small_schedulers import commit_ones, run_all, small_scheduler

from tsschedulers import CacheGroupConfig, Scheduler
from tsschedulers.reference_books import Sizes
from tsschedulers.side_by_side import SideBySide

# Order


def _order(scheduler: Scheduler) -> list[int]:
    """First tokens of requests in the order of their admission, one at a time."""
    return [int(plan.token_ids[0]) for plan in run_all(scheduler)]


def test_lower_priorities_run_first_and_equal_ones_by_arrival() -> None:
    scheduler = small_scheduler(max_batch=1)
    for name, priority in ((1, 5), (2, 0), (3, 5), (4, -1), (5, 0)):
        scheduler.submit([name], 1, priority=priority)
    assert _order(scheduler) == [4, 2, 5, 1, 3]


@pytest.mark.parametrize(("steps", "order"), [(7, [3, 2]), (9, [2, 3])])
def test_waiting_makes_up_for_priority(steps: int, order: list[int]) -> None:
    scheduler = small_scheduler(max_batch=1, ageing=4)
    scheduler.submit([1], 30)
    commit_ones(scheduler, scheduler.plan())
    scheduler.submit([2], 1, priority=2)  # worth 8 steps
    for _ in range(steps):
        commit_ones(scheduler, scheduler.plan())
    scheduler.submit([3], 1)
    ran = [int(p.token_ids[0]) for p in run_all(scheduler) if len(p.admitted) > 0]
    assert ran == order


def test_nobody_passes_an_earlier_request_that_does_not_fit() -> None:
    scheduler = small_scheduler(16, prefix_cache=False)
    scheduler.submit([1] * 40, 4)
    commit_ones(scheduler, scheduler.plan())
    large, small = scheduler.submit([2] * 30, 1), scheduler.submit([3], 1)
    admitted = [a.handle for plan in run_all(scheduler) for a in plan.admitted]
    assert admitted == [large, small]


def test_an_admission_leaves_the_watermark_unless_it_is_alone() -> None:
    scheduler = small_scheduler(16, watermark=0.5, prefix_cache=False)
    scheduler.submit([1] * 60, 4)
    assert len(scheduler.plan().admitted) == 1, "alone it may have all"
    scheduler = small_scheduler(16, watermark=0.5, prefix_cache=False)
    scheduler.submit([1] * 8, 4)
    scheduler.submit([2] * 28, 4)  # 7 of 14 pages: 8 have to stay free
    assert len(scheduler.plan().admitted) == 1


# Prefixes


def _cached(scheduler: Scheduler, tokens: list[int]) -> int:
    scheduler.submit(tokens, 1)
    (plan,) = run_all(scheduler)
    return plan.admitted[0].cached_tokens


def test_a_hit_leaves_one_token_to_compute() -> None:
    scheduler = small_scheduler()
    assert _cached(scheduler, [*range(16)]) == 0
    assert _cached(scheduler, [*range(16)]) == 12
    assert _cached(scheduler, [*range(17)]) == 16
    assert _cached(scheduler, [*range(10)]) == 8
    assert _cached(scheduler, [7, *range(1, 16)]) == 0


def test_the_answer_is_cached_too() -> None:
    scheduler = small_scheduler()
    scheduler.submit([*range(6)], 7)
    run_all(scheduler)
    assert _cached(scheduler, [*range(6), *[9] * 7, 1, 2]) == 12


def test_a_duplicate_of_a_published_page_stays_private() -> None:
    scheduler = small_scheduler()
    scheduler.submit([*range(16)], 4)
    scheduler.submit([*range(16)], 4)
    run_all(scheduler)
    stats = scheduler.stats()
    assert (stats.cached_pages[0], stats.free_pages[0]) == (4, 60)


def test_the_least_recently_used_goes_first() -> None:
    scheduler = small_scheduler(12)
    prompts = [[seed, *range(15)] for seed in range(3)]
    for prompt in prompts:
        assert _cached(scheduler, prompt) == 0  # 4 pages each: the pool is full
    assert _cached(scheduler, prompts[0]) == 12
    assert _cached(scheduler, [7] * 16) == 0  # takes those of prompts[1]
    assert _cached(scheduler, prompts[2]) == 12
    assert _cached(scheduler, prompts[0]) == 12


def test_without_a_cache_nothing_is_kept() -> None:
    scheduler = small_scheduler(prefix_cache=False)
    assert _cached(scheduler, [*range(16)]) == 0
    assert _cached(scheduler, [*range(16)]) == 0
    assert scheduler.stats().cached_pages[0] == 0


# Groups


def test_a_window_gives_old_pages_back() -> None:
    groups = (CacheGroupConfig("full", 65), CacheGroupConfig("window", 33, 8))
    scheduler = small_scheduler(groups=groups, prefix_cache=False)
    scheduler.submit([1] * 4, 200)
    held: list[int] = []
    for _ in range(150):
        commit_ones(scheduler, scheduler.plan())
        held.append(32 - scheduler.stats().free_pages[1])
    assert max(held) == 3, "8 tokens touch at most 3 pages of 4"
    assert scheduler.stats().free_pages[0] == 64 - 39


def test_groups_agree_on_one_hit() -> None:
    # The window's pool holds few pages, so that it forgets the first prompt; the other does not.
    groups = (CacheGroupConfig("full", 65), CacheGroupConfig("window", 22, 8))
    scheduler = small_scheduler(groups=groups, token_budget=56)
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
    scheduler = small_scheduler()
    parent = scheduler.submit([1, 2], 1)
    run_all(scheduler)
    with pytest.raises(ValueError, match="the parent of the fork is not live"):
        scheduler.fork(parent, 1)


def test_several_tokens_a_step_are_planned_again_only_after_the_commit() -> None:
    scheduler = small_scheduler(tokens_per_step=3)
    scheduler.submit([1, 2], 9)
    commit_ones(scheduler, scheduler.plan())
    plan = scheduler.plan()
    assert plan.positions.tolist() == [2, 3, 4]
    assert plan.token_ids.tolist() == [9, -1, -1]
    assert scheduler.plan().reason == "in_flight"
    slots = np.array([plan.slots[0]] * 2, np.int32)
    scheduler.commit(plan.step, slots, np.array([5, 6], np.int32), np.zeros(2, np.bool_))
    assert scheduler.plan().positions.tolist() == [4, 5, 6], "two of three were right"
