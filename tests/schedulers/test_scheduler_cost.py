"""What a step costs, in counted operations: never the context's, the pool's or the cache's size.

`Stats.work` counts rows, pages, cache nodes and requests visited.
"""

from __future__ import annotations

import numpy as np
import pytest

from tsschedulers import CacheGroupConfig, Config, Handle, Plan, Scheduler

PAGE_SIZE = 4
STEPS = 8 * PAGE_SIZE


def _scheduler(pages: int, *, batch: int = 8, window: int | None = None) -> Scheduler:
    return Scheduler(
        Config(
            page_size=PAGE_SIZE,
            max_batch=batch,
            max_model_len=8192,
            token_budget=512,
            groups=[CacheGroupConfig("group", pages + 1, window)],
            watermark=0.0,
        )
    )


def _prompt(seed: int, length: int) -> list[int]:
    return [seed, *range(length - 1)]


def _step(scheduler: Scheduler, *, ends: bool = False) -> Plan:
    plan = scheduler.plan()
    slots = plan.slots[plan.samples == 1]
    if not plan.empty:
        ones = np.ones(slots.size, np.int32)
        scheduler.commit(plan.step, slots, ones, np.full(slots.size, ends))
    return plan


def _fill_cache(scheduler: Scheduler, pages: int) -> None:
    seed = 1000
    while scheduler.stats().cached_pages[0] < pages:
        scheduler.submit(_prompt(seed, 32 * PAGE_SIZE), 1)
        seed += 1
        while not _step(scheduler).empty:
            pass


def _decode(scheduler: Scheduler, requests: int, context: int) -> list[Handle]:
    """Requests that have been prefilled."""
    handles = [scheduler.submit(_prompt(seed, context), 500) for seed in range(requests)]
    while (plan := _step(scheduler)).num_decodes < requests or plan.num_tokens > requests:
        pass
    return handles


def _work(scheduler: Scheduler, steps: int = STEPS) -> int:
    before = scheduler.stats().work
    for _ in range(steps):
        _step(scheduler)
    return scheduler.stats().work - before


def _decode_work(context: int, pages: int, cached: int, window: int | None = None) -> int:
    scheduler = _scheduler(pages, window=window)
    _fill_cache(scheduler, cached)
    _decode(scheduler, 8, context)
    return _work(scheduler)


def test_a_decode_step_does_not_depend_on_context_pool_or_cache() -> None:
    base = _decode_work(64, 2000, 0)
    assert base < 8 * STEPS * 8, "a few operations a request"
    assert _decode_work(2048, 6000, 0) == base
    assert _decode_work(64, 60_000, 0) == base
    assert _decode_work(64, 60_000, 20_000) == base


def test_a_full_cache_costs_one_eviction_a_new_page() -> None:
    pages = 4000
    scheduler = _scheduler(pages)
    _fill_cache(scheduler, pages - 40)
    _decode(scheduler, 8, 64)
    new_pages = 8 * STEPS // PAGE_SIZE
    assert _work(scheduler) <= _decode_work(64, pages, 0) + 2 * new_pages


def test_a_window_costs_nothing_of_what_has_left_it() -> None:
    assert _decode_work(1024, 3000, 0, window=32) == _decode_work(256, 3000, 0, window=32)


def test_it_is_linear_in_the_requests() -> None:
    works: list[int] = []
    for requests in (8, 64):
        scheduler = _scheduler(6000, batch=requests)
        _decode(scheduler, requests, 64)
        works.append(_work(scheduler))
    assert works[1] <= 8.5 * works[0]


@pytest.mark.parametrize("length", [400, 8000])
def test_a_request_that_does_not_fit_costs_nothing_more_for_its_length(length: int) -> None:
    """Its prefix is not looked up again in each step."""
    scheduler = _scheduler(2100)
    _decode(scheduler, 4, 2000)
    alone = _work(scheduler, STEPS)
    scheduler.submit(_prompt(77, length), 1)
    assert _step(scheduler).num_decodes == 4, "it waits"
    assert scheduler.stats().waiting == 1
    assert _work(scheduler, STEPS) <= alone + 2 * STEPS


def _admission_work(cached: int, prompt: list[int]) -> int:
    scheduler = _scheduler(60_000)
    _fill_cache(scheduler, cached)
    before = scheduler.stats().work
    scheduler.submit(prompt, 1)
    while not _step(scheduler).empty:
        pass
    return scheduler.stats().work - before


def test_a_hit_does_not_depend_on_the_size_of_the_cache() -> None:
    prompt = [*_prompt(1000, 32 * PAGE_SIZE), 1]
    assert _admission_work(2000, prompt) == _admission_work(20_000, prompt)


def test_waiting_requests_cost_nothing() -> None:
    scheduler = _scheduler(600)
    _decode(scheduler, 8, 64)
    alone = _work(scheduler)
    for seed in range(2000):
        scheduler.submit(_prompt(100 + seed, 64), 1)
    assert _work(scheduler) <= alone + STEPS
