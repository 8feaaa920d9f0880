"""Stores and loads that fail, are late, are acknowledged twice, or outlive their request.

All run side by side with the reference over the fake device, which checks every decision.
"""

from __future__ import annotations

import pytest
from small_worlds import lasting_prompt, small_sizes, step_alone, until_retracted

from tsschedulers.reference_books import Sizes
from tsschedulers.side_by_side import SideBySide


def _stats(world: SideBySide) -> tuple[object, ...]:
    stats = world.scheduler.stats()
    return (stats.waiting, stats.running, list(stats.free_pages), list(stats.cached_pages))


def _storing(host_pages: int = 8) -> tuple[SideBySide, int, int]:
    """A world where the second request has just been retracted; its ticket."""
    world = SideBySide(small_sizes(8, host_pages=host_pages))
    world.submit(lasting_prompt(6, 8), 8)
    second = world.submit(lasting_prompt(6, 8, 1), 8)
    plan = until_retracted(world)
    assert list(plan.retracted) == [world.handles[second]]
    assert len(world.tickets) == 1
    return world, second, world.tickets[0]


def _loading() -> tuple[SideBySide, int, int]:
    """A world where the second request is being loaded back; the load's ticket."""
    world, second, ticket = _storing()
    world.transfer(ticket)
    for _ in range(100):
        plan = step_alone(world)
        if world.tickets:
            assert [a.handle for a in plan.admitted] == [world.handles[second]]
            return world, second, world.tickets[0]
    raise AssertionError("nothing was loaded")


def test_abort_during_store() -> None:
    world, second, ticket = _storing()
    world.abort(second)
    held = world.scheduler.stats().free_pages[0]
    world.transfer(ticket)
    assert world.scheduler.stats().free_pages[0] > held, "the ticket held the pages until then"
    world.drain(world.bound())


def test_abort_during_load() -> None:
    world, second, ticket = _loading()
    world.abort(second)
    held = world.scheduler.stats().free_pages[0]
    assert held < 8, "the transfer may still write them"
    world.transfer(ticket)
    assert world.scheduler.stats().free_pages[0] == 8
    world.drain(world.bound())


# Transfers


def test_a_store_that_fails() -> None:
    world, second, ticket = _storing()
    world.transfer(ticket, ok=False)
    world.drain(world.bound())
    assert world.outputs[second] == world.asked[second].answer


def test_a_load_that_fails_is_computed_instead() -> None:
    world, second, ticket = _loading()
    world.transfer(ticket, ok=False)
    plan = step_alone(world)
    assert [(a.handle, a.cached_tokens) for a in plan.admitted] == [(world.handles[second], 0)]
    world.drain(world.bound())
    assert world.outputs[second] == world.asked[second].answer


def test_a_transfer_that_is_late() -> None:
    world, second, ticket = _storing()
    while step_alone(world).reason != "waiting_transfer":
        pass
    assert world.scheduler.stats().waiting == 1
    world.transfer(ticket)
    world.drain(world.bound())
    assert world.outputs[second] == world.asked[second].answer


def test_a_transfer_that_is_acknowledged_twice() -> None:
    world, _, ticket = _storing()
    world.transfer(ticket)
    before = _stats(world)
    with pytest.raises(ValueError, match=f"ticket {ticket} is not outstanding"):
        world.scheduler.transfer_done(ticket, True)
    assert _stats(world) == before
    world.drain(world.bound())


def test_a_store_of_pages_that_the_window_has_passed_is_none() -> None:
    """A ticket that moves no page would never be acknowledged."""
    sizes = Sizes(
        page_size=2,
        max_batch=6,
        max_model_len=24,
        token_budget=8,
        groups=((8, 2),),
        host_pages=4,
        watermark=0.0,
    )
    world = SideBySide(sizes)
    numbers = [world.submit([100 * i + 1, 0, 1], 16) for i in range(6)]
    plan = until_retracted(world)
    assert list(plan.retracted) == [world.handles[numbers[5]]]
    assert len(world.outputs[numbers[5]]) == 1, "3 positions were computed, one page is complete"
    assert plan.groups[0].stores.size == 0
    assert not world.tickets
    world.drain(world.bound())
