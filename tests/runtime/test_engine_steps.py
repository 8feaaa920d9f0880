"""The engine: every request gets the tokens that it would get alone, whatever runs beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from tiny_plan import MAX_LEN, VOCAB, Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor

from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Event, FinishReason, Refused, Submit, TokenOutput
from tsruntime.executor.batch import ForwardBatch
from tsruntime.sampling.params import SamplingParams

WHOLE = whole_weights()


@dataclass(slots=True)
class Recorder(NoFollowers):
    """Keeps what the other ranks would be told."""

    batches: list[ForwardBatch] = field(default_factory=list[ForwardBatch])

    def step(self, batch: ForwardBatch) -> None:
        self.batches.append(batch)


def make_engine(sizes: Sizes = Sizes(), recorder: Recorder | None = None) -> Engine:  # noqa: B008
    plan = tiny_plan(sizes)
    return Engine(plan, make_executor(plan), recorder or NoFollowers())


def greedy(count: int, **changes: object) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0.0, **changes)  # pyright: ignore[reportArgumentType]


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, VOCAB, length).tolist())


def outputs(events: Sequence[Event]) -> list[TokenOutput]:
    return [event for event in events if isinstance(event, TokenOutput)]


def finish_all(engine: Engine, limit: int = 2000) -> Mapping[int, list[TokenOutput]]:
    """Step until nothing is live or in flight; outputs by request."""
    got = dict[int, list[TokenOutput]]()
    for _ in range(limit):
        if not engine.busy:
            return got
        for output in outputs(engine.step()):
            got.setdefault(output.id, []).append(output)
    raise AssertionError(f"{engine.live} requests live after {limit} steps")


def tokens(got: Sequence[TokenOutput]) -> list[int]:
    return [output.token for output in got]


def unowned(engine: Engine) -> int:
    """Pages that no request holds: free, or kept only for their contents."""
    return engine.stats.free_pages[0] + engine.stats.cached_pages[0]


REQUESTS = {
    i: (prompt(i, length), count)
    for i, (length, count) in enumerate(
        [(1, 9), (3, 20), (40, 12), (17, 1), (2, 30), (25, 25), (16, 6), (7, 18)]
    )
}


@pytest.mark.parametrize(
    ("sizes", "retracts"),
    [
        (Sizes(), False),
        (Sizes(token_budget=8, extend=((8, 4),)), False),
        (Sizes(pages=17), True),
        (Sizes(pages=17, decode=(1,), max_batch=4), True),
        (Sizes(steps_in_flight=2), False),
        (Sizes(pages=17, steps_in_flight=2), True),
    ],
    ids=["room", "small budget", "small pool", "few decode buckets", "two steps", "two, small"],
)
def test_requests_together_get_the_tokens_they_get_alone(sizes: Sizes, retracts: bool) -> None:
    engine = make_engine(sizes)
    assert not engine.busy
    for i, (tokens_in, count) in REQUESTS.items():
        assert engine.submit(Submit(i, tokens_in, greedy(count))) == []
    got = finish_all(engine)
    for i, (tokens_in, count) in REQUESTS.items():
        assert tokens(got[i]) == tiny_greedy(WHOLE, list(tokens_in), count)
        assert [o.finish for o in got[i]] == [None] * (count - 1) + [FinishReason.LENGTH]
    assert (engine.stats.retractions > 0) == retracts
    assert unowned(engine) == sizes.pages - 1


def test_requests_that_come_and_go_get_the_tokens_they_get_alone() -> None:
    engine, got = make_engine(), dict[int, list[int]]()
    for i, (tokens_in, count) in REQUESTS.items():
        engine.submit(Submit(i, tokens_in, greedy(count)))
        for _ in range(3):
            for output in outputs(engine.step()):
                got.setdefault(output.id, []).append(output.token)
    for i, rest in finish_all(engine).items():
        got.setdefault(i, []).extend(tokens(rest))
    for i, (tokens_in, count) in REQUESTS.items():
        assert got[i] == tiny_greedy(WHOLE, list(tokens_in), count)


def test_random_draws_and_penalties_survive_retraction() -> None:
    params = SamplingParams(
        max_tokens=24, temperature=0.9, top_p=0.95, seed=5, frequency_penalty=1.5,
        repetition_penalty=1.3, presence_penalty=0.5,
    )  # fmt: skip
    results = list[Mapping[int, list[int]]]()
    for pages, steps in ((65, 1), (17, 1), (17, 2)):
        engine = make_engine(Sizes(pages=pages, steps_in_flight=steps))
        for i in range(5):
            engine.submit(Submit(i, prompt(i, 20), params))
        results.append({i: tokens(got) for i, got in finish_all(engine).items()})
        assert (engine.stats.retractions > 0) == (pages == 17)
    assert results[0] == results[1] == results[2]


def test_a_prompt_found_in_the_cache_gives_the_same_tokens_and_says_so() -> None:
    engine = make_engine()
    for id_ in (1, 2):
        engine.submit(Submit(id_, prompt(3, 18), greedy(12)))
        got = finish_all(engine)[id_]
        assert tokens(got) == tiny_greedy(WHOLE, list(prompt(3, 18)), 12)
        # whole pages of 4 are found again, and at most all tokens but one
        assert {output.cached_tokens for output in got} == {0 if id_ == 1 else 16}


def test_penalties_change_what_is_drawn() -> None:
    engine = make_engine()
    engine.submit(Submit(0, prompt(1, 5), greedy(20)))
    engine.submit(Submit(1, prompt(1, 5), greedy(20, frequency_penalty=2.0)))
    got = finish_all(engine)
    assert tokens(got[0]) != tokens(got[1])


def test_a_stop_token_ends_a_request_and_is_delivered() -> None:
    expected = tiny_greedy(WHOLE, list(prompt(3, 6)), 20)
    stop = expected[4]
    first = expected.index(stop)
    engine = make_engine()
    engine.submit(Submit(0, prompt(3, 6), greedy(20, stop_token_ids=(stop,))))
    got = finish_all(engine)[0]
    assert tokens(got) == expected[: first + 1]
    assert got[-1].finish is FinishReason.STOP


def test_a_stop_token_before_min_tokens_does_not_end_a_request() -> None:
    stop = tiny_greedy(WHOLE, list(prompt(3, 6)), 1)[0]
    engine = make_engine()
    engine.submit(Submit(0, prompt(3, 6), greedy(9, stop_token_ids=(stop,), min_tokens=6)))
    got = tokens(finish_all(engine)[0])
    assert len(got) >= 6
    assert stop not in got[:6]


@pytest.mark.parametrize(
    ("tokens_in", "count", "message"),
    [
        ((), 4, "empty"),
        (prompt(0, MAX_LEN), 1, f"{MAX_LEN}"),
        (prompt(0, 10), MAX_LEN, f"{MAX_LEN}"),
        ((1, VOCAB, 2), 4, f"{VOCAB} is outside of the vocabulary: 0 to {VOCAB - 1}"),
        ((1, -1), 4, "-1 is outside"),
    ],
)
def test_what_can_never_run_is_refused_and_the_engine_lives(
    tokens_in: tuple[int, ...], count: int, message: str
) -> None:
    engine = make_engine()
    (event,) = engine.submit(Submit(7, tokens_in, greedy(count)))
    assert isinstance(event, Refused)
    assert event.id == 7
    assert message in event.message
    engine.submit(Submit(7, (1, 2), greedy(3)))
    assert tokens(finish_all(engine)[7]) == tiny_greedy(WHOLE, [1, 2], 3)


def test_a_prompt_larger_than_the_pool_is_refused() -> None:
    engine = make_engine(Sizes(pages=9))
    (event,) = engine.submit(Submit(0, prompt(0, 40), greedy(4)))
    assert isinstance(event, Refused)


def test_an_id_that_is_live_is_a_mistake_of_the_caller() -> None:
    engine = make_engine()
    engine.submit(Submit(0, (1,), greedy(3)))
    with pytest.raises(ValueError, match="request 0 is live"):
        engine.submit(Submit(0, (2,), greedy(3)))


def test_an_aborted_request_gives_nothing_more_and_its_pages_return() -> None:
    engine = make_engine()
    for i in range(3):
        engine.submit(Submit(i, prompt(i, 9), greedy(30)))
    engine.submit(Submit(9, prompt(9, 9), greedy(30)))
    for _ in range(6):
        engine.step()
    engine.abort(1)
    engine.abort(1)
    engine.abort(12345)
    got = finish_all(engine)
    assert 1 not in got
    assert set(got) == {0, 2, 9}
    assert unowned(engine) == Sizes().pages - 1


def test_an_engine_without_requests_has_nothing_to_do() -> None:
    recorder = Recorder()
    engine = make_engine(recorder=recorder)
    assert engine.step() == []
    engine.submit(Submit(0, (1,), greedy(3)))
    engine.abort(0)
    assert engine.step() == []
    assert recorder.batches == []


def test_decodes_run_in_the_smallest_decode_program() -> None:
    recorder = Recorder()
    engine = make_engine(recorder=recorder)
    for i in range(3):
        engine.submit(Submit(i, prompt(i, 3), greedy(4 + 2 * i)))
    finish_all(engine)
    plan = tiny_plan()
    names = [plan.programs[batch.program].name for batch in recorder.batches]
    assert names == ["extend-16-4"] + ["decode-4-4"] * 3 + ["decode-2-2"] * 2 + ["decode-1-1"] * 2
