"""How schedulers have failed elsewhere, one test each.

All run side by side with the reference over the fake device: besides what a test says, every
decision, every page that is read and every answer is checked.
"""

from __future__ import annotations

import numpy as np
import pytest
from small_worlds import lasting_prompt, small_sizes, step_alone, until_retracted

from tsschedulers import Handle, Plan
from tsschedulers.reference_books import Sizes
from tsschedulers.side_by_side import SideBySide


def _stats(world: SideBySide) -> tuple[object, ...]:
    stats = world.scheduler.stats()
    return (stats.waiting, stats.running, list(stats.free_pages), list(stats.cached_pages))


def _commit(world: SideBySide, step: int, slots: list[int], tokens: list[int]) -> None:
    ends = np.zeros(len(slots), np.bool_)
    world.scheduler.commit(step, np.array(slots, np.int32), np.array(tokens, np.int32), ends)


# Aborts


def test_abort_with_a_step_in_flight_and_the_next_one_planned() -> None:
    world = SideBySide(small_sizes(16))
    gone = world.submit(lasting_prompt(5, 10), 10)
    world.submit(lasting_prompt(3, 10, 1), 10)
    step_alone(world)
    world.plan()
    world.plan()
    free = world.scheduler.stats().free_pages[0]
    world.abort(gone)
    assert world.scheduler.stats().free_pages[0] == free, "its pages wait for both steps"
    world.commit(late=True)
    assert world.scheduler.stats().free_pages[0] == free, "one step still names them"
    world.commit(late=True)
    assert world.scheduler.stats().free_pages[0] > free
    world.drain(world.bound())


def test_cancellation_commits_no_late_token() -> None:
    world = SideBySide(small_sizes(16))
    gone = world.submit(lasting_prompt(5, 10), 10)
    step_alone(world)
    world.plan()
    world.abort(gone)
    world.commit(late=True)
    assert len(world.outputs[gone]) == 1, "only the token before the abort"
    assert _stats(world) == (0, 0, [16], [0])


# Results


def test_a_result_for_a_generation_that_is_gone() -> None:
    world = SideBySide(small_sizes(16, max_batch=1))
    old = world.submit(lasting_prompt(5, 10), 10)
    world.plan()
    world.abort(old)
    new = world.submit(lasting_prompt(4, 4, 1), 4)
    assert world.handles[new].index == world.handles[old].index, "the place is used again"
    assert world.handles[new] != world.handles[old]
    assert not world.scheduler.abort(world.handles[old]), "a stale handle names nobody"
    world.commit(late=True)
    world.drain(world.bound())


@pytest.mark.parametrize(
    ("slots", "tokens", "message"),
    [
        ([0, 3], [1, 1], "slot 3 is not in the step"),
        ([0, -1], [1, 1], "slot -1 is not in the step"),
        ([0, 99], [1, 1], "slot 99 is not in the step"),
        ([0, 0], [1, 1], "slot 0 yields fewer tokens in this step"),
        ([0, 1], [1, -5], "slot 1: token -5 is negative"),
        ([0, 2], [1, 1], "slot 2 samples no token in this step"),
        ([0], [1], "no token for slot 1"),
        ([0, 1, 1], [1, 1], "3 slots, 2 tokens and 3 finished must be equally many"),
    ],
)
def test_a_batch_with_one_bad_entry_changes_nothing(
    slots: list[int], tokens: list[int], message: str
) -> None:
    world = SideBySide(small_sizes(32, token_budget=16))
    world.submit(lasting_prompt(4, 10), 10)
    world.submit(lasting_prompt(4, 10, 1), 10)
    world.submit(lasting_prompt(20, 4, 2), 4)
    plan = world.plan()
    assert plan.samples.tolist() == [1, 1, 0]
    before = _stats(world)
    with pytest.raises(ValueError, match=message):
        _commit(world, plan.step, slots, tokens)
    assert _stats(world) == before
    world.commit()
    world.drain(world.bound())


def test_a_step_out_of_order_changes_nothing() -> None:
    world = SideBySide(small_sizes(32))
    world.submit(lasting_prompt(4, 10), 10)
    first, second = world.plan(), world.plan()
    with pytest.raises(ValueError, match=f"the oldest step in flight is {first.step}"):
        _commit(world, second.step, [0], [1])
    world.commit()
    with pytest.raises(ValueError, match=f"the oldest step in flight is {second.step}"):
        _commit(world, first.step, [0], [1])
    world.commit()
    with pytest.raises(ValueError, match="no step is in flight"):
        _commit(world, second.step, [0], [1])
    world.drain(world.bound())


# Capacity


def test_capacity_exhausted_by_prefills_alone() -> None:
    world = SideBySide(small_sizes(16, token_budget=8, max_batch=4))
    numbers = [world.submit(lasting_prompt(14, 2, seed), 2) for seed in range(4)]
    world.plan()
    assert world.scheduler.stats().running == 1, "prefills that do not fit together wait"
    world.commit()
    world.drain(world.bound())
    assert [len(world.outputs[n]) for n in numbers] == [2] * 4
    assert world.scheduler.stats().retractions == 0


@pytest.mark.parametrize("new", [1, 2, 9])
def test_a_pool_of_exactly_one_requests_size(new: int) -> None:
    positions = 7 + new - 1
    world = SideBySide(small_sizes(-(-positions // 2)))
    numbers = [world.submit(lasting_prompt(7, new, seed), new) for seed in range(2)]
    world.drain(world.bound())
    assert all(world.outputs[n] == world.asked[n].answer for n in numbers)
    with pytest.raises(ValueError, match="pages of group 'g0', which has"):
        world.scheduler.submit([1] * 8, new + 1)


def test_two_requests_that_fit_alone_and_not_together() -> None:
    world = SideBySide(small_sizes(8))
    first, second = (world.submit(lasting_prompt(6, 10, seed), 10) for seed in range(2))
    plan = until_retracted(world)
    assert list(plan.retracted) == [world.handles[second]], "the last goes, never the first"
    world.drain(world.bound())
    assert world.outputs[first] == world.asked[first].answer
    assert world.outputs[second] == world.asked[second].answer


@pytest.mark.parametrize("page_size", [1, 2, 4])
def test_a_page_boundary_reached_by_exactly_the_last_token(page_size: int) -> None:
    # The last token is never read: 4 + 5 tokens take 8 places.
    world = SideBySide(small_sizes(8 // page_size, page_size=page_size))
    number = world.submit(lasting_prompt(4, 5), 5)
    world.drain(world.bound())
    assert len(world.outputs[number]) == 5
    assert world.scheduler.stats().free_pages[0] == 8 // page_size


# Prefixes


def _cached(plan: Plan, handle: Handle) -> int:
    return next(a.cached_tokens for a in plan.admitted if a.handle == handle)


def test_equal_prompts_of_two_tenants_share_nothing() -> None:
    world = SideBySide(small_sizes(32, prefix_cache=True))
    prompt = lasting_prompt(8, 1)
    world.submit(prompt, 1, salt=1)
    world.drain(world.bound())
    other = world.submit(prompt, 1, salt=2)
    same = world.submit(prompt, 1, salt=1)
    plan = step_alone(world)
    assert _cached(plan, world.handles[other]) == 0
    assert _cached(plan, world.handles[same]) == 6, "all but the page that holds the last token"
    world.drain(world.bound())


def test_colliding_prefixes_are_told_apart() -> None:
    world = SideBySide(small_sizes(32, prefix_cache=True, prefix_hash_bits=0))
    prompts = [lasting_prompt(8, 1, seed) for seed in range(3)]
    for prompt in prompts[:2]:
        world.submit(prompt, 1)
    world.drain(world.bound())
    numbers = [world.submit(prompt, 1) for prompt in prompts]
    plan = step_alone(world)
    assert [_cached(plan, world.handles[n]) for n in numbers] == [6, 6, 0]
    world.drain(world.bound())


# Order


def test_one_page_published_may_close_the_gap_in_a_long_hit() -> None:
    """A window needs only its last pages, so a hit grows by more than is published."""
    sizes = Sizes(
        page_size=2,
        max_batch=4,
        max_model_len=29,
        token_budget=11,
        groups=((18, 8),),
        host_pages=3,
        watermark=0.0,
    )
    world = SideBySide(sizes)
    for length, new in ((13, 7), (22, 7)):
        world.submit([1] * length, new)
    parent = world.submit([2, 2, 1, 2, 2, 1, 1, 2, 2, 1, 1], 9, priority=2)
    world.plan()
    child = world.fork(parent, 8)
    world.commit()
    world.plan()
    world.drain(world.bound())
    assert world.outputs[child] == world.asked[child].answer


def test_a_stream_of_prefills_does_not_delay_a_decode() -> None:
    world = SideBySide(small_sizes(400, max_batch=8, token_budget=16))
    decode = world.submit(lasting_prompt(4, 20), 20)
    step_alone(world)
    for seed in range(1, 20):
        world.submit(lasting_prompt(30, 1, seed), 1)
        plan = step_alone(world)
        assert plan.num_tokens == 16, "the prefills take what is left of the budget"
        assert len(world.outputs[decode]) == seed + 1, "the decode has its token in every step"
    world.drain(world.bound())


def test_the_oldest_waiting_request_runs_next_whatever_its_id() -> None:
    world = SideBySide(small_sizes(64, max_batch=1))
    blockers = [world.submit(lasting_prompt(3, 3, seed), 3) for seed in range(12)]
    for number in blockers[1:11]:
        world.abort(number)  # so that later submissions get earlier places
    later = [world.submit(lasting_prompt(3, 3, seed), 3) for seed in range(20, 30)]
    assert world.handles[later[-1]].index < world.handles[blockers[11]].index
    ran: list[Handle] = []
    while world.live:
        ran += [admission.handle for admission in step_alone(world).admitted]
    assert ran == [world.handles[n] for n in (blockers[0], blockers[11], *later)]


def test_nobody_is_admitted_while_a_step_names_it() -> None:
    """Its token comes first: it is part of what the request computes when it comes back."""
    world = SideBySide(small_sizes(26, page_size=1, token_budget=9, tokens_per_step=2))
    first = world.submit(lasting_prompt(15, 8), 8)
    world.plan()
    world.plan()
    second = world.submit(lasting_prompt(10, 11, 1), 11)
    world.commit()
    world.plan()
    world.commit()
    plan = world.plan()
    assert list(plan.retracted) == [world.handles[second]], "the first needs two pages more"
    assert len(world.flight) == 1, "a step still names the second"
    world.abort(first)
    assert world.plan().admitted == [], "though there is room for it"
    world.commit()
    assert [a.handle for a in world.plan().admitted] == [world.handles[second]]
    world.drain(world.bound())
    assert world.outputs[second] == world.asked[second].answer
