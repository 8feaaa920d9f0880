"""The C++ scheduler and its reference, side by side, over a device that remembers everything."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tsschedulers.reference_books import Sizes
from tsschedulers.side_by_side import SideBySide


@st.composite
def worlds(draw: st.DrawFn) -> Sizes:
    """Small sizes, so that everything runs short."""
    page_size = draw(st.sampled_from([1, 2, 4]))
    max_batch = draw(st.integers(1, 5))
    tokens_per_step = draw(st.sampled_from([1, 1, 1, 2, 3]))
    max_model_len = draw(st.integers(4, 36))
    budget = max_batch * tokens_per_step + page_size + draw(st.integers(0, 10))
    groups: list[tuple[int, int | None]] = []
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        window = draw(st.none() | st.integers(2, 12))
        need = -(-max_model_len // page_size)
        if window is not None:
            need = min(need, -(-(window + budget) // page_size) + 2)
        groups.append((1 + need + draw(st.integers(0, need)), window))
    return Sizes(
        page_size=page_size,
        max_batch=max_batch,
        max_model_len=max_model_len,
        token_budget=budget,
        groups=tuple(groups),
        tokens_per_step=tokens_per_step,
        host_pages=draw(st.sampled_from([0, 0, 3, 20])),
        prefix_cache=draw(st.sampled_from([True, True, True, False])),
        watermark=draw(st.sampled_from([0.0, 0.01, 0.3])),
        ageing=draw(st.sampled_from([1, 4, 64])),
        prefix_hash_bits=draw(st.sampled_from([32, 2, 0])),
    )


class SchedulerMachine(RuleBasedStateMachine):
    """Anything that the engine may do, in any order; every decision and every read is checked."""

    world: SideBySide

    @initialize(sizes=worlds())
    def begin(self, sizes: Sizes) -> None:
        self.world = SideBySide(sizes)

    def _submit(self, prompt: list[int], new: int, priority: int, salt: int) -> None:
        longest = self.world.sizes.max_model_len
        prompt = prompt[: longest - 1]
        self.world.submit(prompt, min(new, longest - len(prompt)), priority=priority, salt=salt)

    @rule(
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=35),
        new=st.integers(1, 12),
        priority=st.sampled_from([0, 0, 0, -1, 2]),
        salt=st.sampled_from([0, 0, 1]),
    )
    def submit(self, prompt: list[int], new: int, priority: int, salt: int) -> None:
        self._submit(prompt, new, priority, salt)

    @rule(length=st.integers(1, 35), new=st.integers(1, 12))
    def submit_a_common_prefix(self, length: int, new: int) -> None:
        self._submit([1] * length, new, 0, 0)

    @precondition(lambda self: self.world.asked)
    @rule(data=st.data(), more=st.lists(st.integers(1, 2), max_size=4), new=st.integers(1, 12))
    def submit_the_next_turn(self, data: st.DataObject, more: list[int], new: int) -> None:
        number = data.draw(st.integers(0, len(self.world.asked) - 1))
        asked = self.world.asked[number]
        self._submit([*asked.tokens, *self.world.outputs[number], *more], new, 0, asked.salt)

    @rule(accept=st.lists(st.integers(0, 2), max_size=5))
    def plan(self, accept: list[int]) -> None:
        self.world.plan(accept)

    @rule()
    def plan_with_nothing_in_flight(self) -> None:
        while self.world.flight:
            self.world.commit()
        self.world.plan()

    @precondition(lambda self: self.world.flight)
    @rule(late=st.booleans())
    def commit(self, late: bool) -> None:
        self.world.commit(late=late)

    @precondition(lambda self: self.world.asked)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.world.abort(data.draw(st.integers(0, len(self.world.asked) - 1)))

    @precondition(lambda self: self.world.live)
    @rule(data=st.data(), new=st.integers(1, 12))
    def fork(self, data: st.DataObject, new: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.world.live.values())))
        length = len(self.world.asked[number].tokens) + len(self.world.outputs[number])
        longest = self.world.sizes.max_model_len
        if length < longest:
            self.world.fork(number, min(new, longest - length))

    @precondition(lambda self: self.world.tickets)
    @rule(data=st.data(), ok=st.sampled_from([True, True, False]))
    def transfer(self, data: st.DataObject, ok: bool) -> None:
        self.world.transfer(data.draw(st.sampled_from(self.world.tickets)), ok=ok)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain(self.world.bound())


MUTANT_EXAMPLES = os.environ.get("SCHEDULER_EXAMPLES")
"""Set where only finding counts: then nothing is shrunk."""


def _run(examples: int, steps: int, *, derandomize: bool) -> None:
    phases = (Phase.generate,) if MUTANT_EXAMPLES else tuple(Phase)
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        SchedulerMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            deadline=None,
            phases=phases,
            database=None,
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
        ),
    )


def test_agrees_with_the_reference() -> None:
    _run(40, 60, derandomize=True)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_agrees_with_the_reference_at_length() -> None:
    _run(int(MUTANT_EXAMPLES or "5000"), 80, derandomize=False)
