"""Small schedulers alone, for tests of what they promise."""

from __future__ import annotations

from typing import TypedDict, Unpack

import numpy as np

from tsschedulers import CacheGroupConfig, Config, Plan, Scheduler


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


def small_scheduler(
    pages: int = 64,
    groups: tuple[CacheGroupConfig, ...] | None = None,
    **options: Unpack[Options],
) -> Scheduler:
    """One group of `pages` pages that can be handed out, unless `groups` says otherwise."""
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


def commit_ones(scheduler: Scheduler, plan: Plan, *, ends: bool = False) -> None:
    """Commit a plan whose samples are all token 9."""
    slots = plan.slots[plan.samples == 1]
    scheduler.commit(plan.step, slots, np.full(slots.size, 9, np.int32), np.full(slots.size, ends))


def run_all(scheduler: Scheduler) -> list[Plan]:
    """All plans until nothing is left."""
    plans: list[Plan] = []
    while not (plan := scheduler.plan()).empty:
        commit_ones(scheduler, plan)
        plans.append(plan)
    assert plan.reason == "idle"
    return plans
