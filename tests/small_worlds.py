"""Small worlds of the scheduler beside its reference, for tests that tell a story."""

from __future__ import annotations

from itertools import count

from tsschedulers import Plan
from tsschedulers.fake_device import answer
from tsschedulers.reference_books import Sizes
from tsschedulers.side_by_side import SideBySide


def small_sizes(
    pages: int,
    *,
    page_size: int = 2,
    max_batch: int = 4,
    max_model_len: int = 64,
    token_budget: int = 32,
    host_pages: int = 0,
    tokens_per_step: int = 1,
    prefix_cache: bool = False,
    prefix_hash_bits: int = 32,
) -> Sizes:
    """One group of `pages` pages that can be handed out; no watermark."""
    return Sizes(
        page_size=page_size,
        max_batch=max_batch,
        max_model_len=max_model_len,
        token_budget=token_budget,
        groups=((pages + 1, None),),
        host_pages=host_pages,
        tokens_per_step=tokens_per_step,
        prefix_cache=prefix_cache,
        watermark=0.0,
        prefix_hash_bits=prefix_hash_bits,
    )


def lasting_prompt(length: int, new: int, seed: int = 0) -> list[int]:
    """A prompt whose answer does not end before `new` tokens."""
    for first in count(100 * seed):
        tokens = [first, *range(length - 1)]
        if len(answer(tokens, 0, new)) == new:
            return tokens
    raise AssertionError


def step_alone(world: SideBySide) -> Plan:
    """One step with nothing else in flight."""
    plan = world.plan()
    if world.flight:
        world.commit()
    return plan


def until_retracted(world: SideBySide) -> Plan:
    """The plan of the first step that retracts somebody."""
    for _ in range(100):
        plan = step_alone(world)
        if len(plan.retracted) > 0:
            return plan
    raise AssertionError("nobody was retracted")
