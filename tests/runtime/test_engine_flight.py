"""Two steps in flight: a step is planned before the one ahead of it is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tiny_plan import Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor

from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import FinishReason, Submit, TokenOutput
from tsruntime.executor.batch import ForwardBatch
from tsruntime.sampling.params import SamplingParams

WHOLE = whole_weights()
PROMPT = (3, 1, 4, 1, 5)
ANSWER = tiny_greedy(WHOLE, list(PROMPT), 12)


class Recorder(NoFollowers):
    def __init__(self) -> None:
        self.batches: list[ForwardBatch] = []

    def step(self, batch: ForwardBatch) -> None:
        self.batches.append(batch)


class Ahead:
    """An engine with two steps in flight, and what it launched."""

    def __init__(self, sizes: Sizes) -> None:
        plan = tiny_plan(sizes)
        self.recorder = Recorder()
        self.engine = Engine(plan, make_executor(plan), self.recorder)

    def submit(self, id_: int, prompt: tuple[int, ...], count: int, stop: int = -1) -> None:
        params = SamplingParams(count, temperature=0.0, stop_token_ids=(stop,) if stop >= 0 else ())
        assert self.engine.submit(Submit(id_, prompt, params)) == []

    def step(self) -> list[tuple[int, int]]:
        return [(e.id, e.token) for e in self.engine.step() if isinstance(e, TokenOutput)]


@pytest.fixture
def ahead() -> Iterator[Ahead]:
    ahead = Ahead(Sizes(steps_in_flight=2))
    with ahead.engine:
        yield ahead


def test_a_step_is_launched_before_the_one_before_is_committed(ahead: Ahead) -> None:
    ahead.submit(0, PROMPT, 12)
    assert ahead.step() == []
    assert len(ahead.recorder.batches) == 1
    for index, token in enumerate(ANSWER[:4]):
        assert ahead.step() == [(0, token)]
        assert len(ahead.recorder.batches) == index + 2
        assert ahead.recorder.batches[-1].token_ids.tolist() == [token]


def test_known_and_unknown_tokens_meet_in_one_step(ahead: Ahead) -> None:
    ahead.submit(0, PROMPT, 12)
    ahead.step()
    ahead.step()
    ahead.submit(1, (7, 8, 9), 3)
    assert ahead.step() == [(0, ANSWER[1])]
    batch = ahead.recorder.batches[-1]
    assert batch.token_ids.tolist() == [ANSWER[1], 7, 8, 9]
    other = tiny_greedy(WHOLE, [7, 8, 9], 3)
    assert ahead.step() == [(0, ANSWER[2]), (1, other[0])]


def test_the_last_token_by_length_launches_nothing_more(ahead: Ahead) -> None:
    ahead.submit(0, PROMPT, 2)
    assert [ahead.step() for _ in range(3)] == [[], [(0, ANSWER[0])], [(0, ANSWER[1])]]
    assert not ahead.engine.busy
    assert len(ahead.recorder.batches) == 2


def test_what_follows_a_stop_token_is_dropped(ahead: Ahead) -> None:
    stop = ANSWER[2]
    first = ANSWER.index(stop)
    ahead.submit(0, PROMPT, 12, stop)
    for _ in range(first + 1):
        ahead.step()
    assert ahead.step() == [(0, stop)]
    assert ahead.engine.live == 0
    assert ahead.engine.busy, "the step after it runs"
    assert ahead.step() == []
    assert not ahead.engine.busy
    stats = ahead.engine.stats
    assert stats.free_pages[0] + stats.cached_pages[0] == Sizes().pages - 1


def test_an_abort_drops_both_steps_in_flight(ahead: Ahead) -> None:
    ahead.submit(0, PROMPT, 12)
    ahead.submit(1, (7, 8, 9), 4)
    ahead.step()
    ahead.step()
    ahead.engine.abort(0)
    said = [event for _ in range(5) for event in ahead.step()]
    assert said == [(1, token) for token in tiny_greedy(WHOLE, [7, 8, 9], 4)[1:]]
    assert not ahead.engine.busy


def test_a_slot_is_given_on_while_the_last_step_of_its_owner_runs() -> None:
    ahead = Ahead(Sizes(steps_in_flight=2, max_batch=1))
    with ahead.engine:
        stop = ANSWER[2]
        ahead.submit(0, PROMPT, 12, stop)
        ahead.submit(1, (7, 8, 9), 3)
        said = list[tuple[int, int]]()
        while ahead.engine.busy:
            said += ahead.step()
    first = [(0, token) for token in ANSWER[: ANSWER.index(stop) + 1]]
    assert said == first + [(1, token) for token in tiny_greedy(WHOLE, [7, 8, 9], 3)]


def test_the_executor_s_error_reaches_the_caller(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(batch: ForwardBatch) -> None:
        raise ArithmeticError("a kernel failed")

    monkeypatch.setattr(ahead.engine._launcher._executor, "forward", fail)  # pyright: ignore[reportPrivateUsage]
    ahead.submit(0, PROMPT, 12)
    ahead.step()
    with pytest.raises(ArithmeticError, match="a kernel failed"):
        ahead.step()


def test_both_depths_give_the_same_tokens_and_reasons() -> None:
    rng = np.random.default_rng(5)
    prompts = [tuple(rng.integers(0, 24, n).tolist()) for n in (1, 9, 30, 4, 17, 2)]
    said: list[dict[int, list[tuple[int, FinishReason | None]]]] = []
    for depth in (1, 2):
        ahead = Ahead(Sizes(pages=19, steps_in_flight=depth))
        got: dict[int, list[tuple[int, FinishReason | None]]] = {}
        with ahead.engine:
            for id_, prompt in enumerate(prompts):
                stops = tuple(range(0, 24, 3)) if id_ % 2 else ()
                params = SamplingParams(20, temperature=0.8, seed=id_, stop_token_ids=stops)
                ahead.engine.submit(Submit(id_, prompt, params))
            while ahead.engine.busy:
                for event in ahead.engine.step():
                    assert isinstance(event, TokenOutput)
                    got.setdefault(event.id, []).append((event.token, event.finish))
        said.append(got)
    assert said[0] == said[1]
    assert {answer[-1][1] for answer in said[0].values()} == set(FinishReason)
