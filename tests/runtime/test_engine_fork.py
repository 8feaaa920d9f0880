"""Forks: several answers to one prompt, which is computed once."""

from __future__ import annotations

import pytest
from tiny_plan import MAX_LEN, VOCAB, Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor

from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Event, Fork, Refused, Submit, TokenOutput
from tsruntime.executor.batch import ForwardBatch
from tsruntime.sampling.params import SamplingParams

WHOLE = whole_weights()
PROMPT = tuple((i * i) % VOCAB for i in range(18))  # four whole pages of 4, and half of one


class Recorder(NoFollowers):
    def __init__(self) -> None:
        self.batches: list[ForwardBatch] = []

    def step(self, batch: ForwardBatch) -> None:
        self.batches.append(batch)


def banned(id_: int) -> tuple[int, ...]:
    """Tokens that a request may not say, so that the answers part at once."""
    return tuple(range(id_, VOCAB, 4))


def params(id_: int, count: int = 9) -> SamplingParams:
    return SamplingParams(count, temperature=0.0, stop_token_ids=banned(id_), min_tokens=count)


def answer(id_: int, count: int = 9) -> list[int]:
    return tiny_greedy(WHOLE, list(PROMPT), count, banned(id_))


def make(sizes: Sizes) -> tuple[Engine, Recorder]:
    plan, recorder = tiny_plan(sizes), Recorder()
    return Engine(plan, make_executor(plan), recorder), recorder


def finish(engine: Engine) -> dict[int, list[int]]:
    got = dict[int, list[int]]()
    while engine.busy:
        for event in engine.step():
            assert isinstance(event, TokenOutput)
            got.setdefault(event.id, []).append(event.token)
    return got


def family(engine: Engine, count: int = 9) -> None:
    assert engine.submit(Submit(0, PROMPT, params(0, count))) == []
    for id_ in range(1, 4):
        assert engine.fork(Fork(id_, 0, params(id_, count))) == []


@pytest.mark.parametrize("steps_in_flight", [1, 2])
def test_forks_share_the_prompt_and_answer_as_if_alone(steps_in_flight: int) -> None:
    engine, recorder = make(
        Sizes(token_budget=32, extend=((32, 4),), steps_in_flight=steps_in_flight)
    )
    with engine:
        family(engine)
        assert engine.live == 4
        assert finish(engine) == {id_: answer(id_) for id_ in range(4)}
    assert len({tuple(answer(id_)) for id_ in range(4)}) == 4
    rows = sum(batch.num_tokens for batch in recorder.batches)
    # the prompt and 8 decodes; each fork computes its last prompt token and 8 decodes
    assert rows == 18 + 8 + 3 * (1 + 8)
    copies = [pair for batch in recorder.batches for pair in batch.groups[0].copies.tolist()]
    assert len(copies) == 3, "the half page, once a fork"
    assert len({source for source, _ in copies}) == 1
    assert len({target for _, target in copies}) == 3


@pytest.mark.parametrize("steps_in_flight", [1, 2])
@pytest.mark.parametrize("host_pages", [0, 3, 30])
def test_forks_that_are_retracted_answer_as_if_alone(host_pages: int, steps_in_flight: int) -> None:
    engine, _ = make(Sizes(pages=17, host_pages=host_pages, steps_in_flight=steps_in_flight))
    with engine:
        family(engine, 24)
        got = finish(engine)
    assert engine.stats.retractions > 0
    assert got == {id_: answer(id_, 24) for id_ in range(4)}


def test_a_fork_that_comes_back_shares_nothing_with_the_parent_that_it_parted_from() -> None:
    """Another request takes the fork's pages, and ends before the parent does."""
    engine, _ = make(Sizes(pages=25))
    engine.submit(Submit(0, PROMPT, params(0, 44)))
    engine.fork(Fork(1, 0, params(1, 44)))
    engine.submit(Submit(2, PROMPT[::-1], SamplingParams(34, temperature=0.0), priority=-1))
    got = finish(engine)
    assert engine.stats.retractions > 0
    assert got[0] == answer(0, 44)
    assert got[1] == answer(1, 44)
    assert got[2] == tiny_greedy(WHOLE, list(PROMPT[::-1]), 34)


def test_forks_outlive_a_parent_of_one_token() -> None:
    engine, _ = make(Sizes())
    engine.submit(Submit(0, PROMPT, params(0, 1)))
    engine.fork(Fork(1, 0, params(1)))
    assert finish(engine) == {0: answer(0, 1), 1: answer(1)}


def test_the_first_fork_takes_the_place_of_an_aborted_parent() -> None:
    engine, recorder = make(Sizes(token_budget=8, extend=((8, 4),)))
    family(engine)
    engine.step()  # a part of the prompt
    assert engine.abort(0) == []
    assert engine.live == 3
    assert finish(engine) == {id_: answer(id_) for id_ in (1, 2, 3)}
    assert sum(len(batch.groups[0].copies) for batch in recorder.batches) == 2


def test_a_fork_that_waits_may_be_aborted() -> None:
    engine, _ = make(Sizes())
    family(engine)
    assert engine.abort(2) == []
    assert engine.live == 3
    assert set(finish(engine)) == {0, 1, 3}
    assert engine.live == 0


def test_a_fork_that_comes_late_starts_from_the_prompt_too() -> None:
    engine, _ = make(Sizes())
    engine.submit(Submit(0, PROMPT, params(0)))
    engine.step()
    engine.step()
    assert engine.fork(Fork(1, 0, params(1))) == []
    assert finish(engine)[1] == answer(1)


def refusal(events: list[Event]) -> Refused:
    (event,) = events
    assert isinstance(event, Refused)
    return event


def test_a_fork_of_nobody_is_refused() -> None:
    engine, _ = make(Sizes())
    refused = refusal(engine.fork(Fork(1, 0, params(1))))
    assert (refused.id, refused.message) == (1, "request 0 is not live")
    assert not engine.busy


def test_a_fork_that_could_never_run_is_refused_when_it_begins() -> None:
    engine, _ = make(Sizes(token_budget=32, extend=((32, 4),)))
    engine.submit(Submit(0, PROMPT, params(0)))
    engine.fork(Fork(1, 0, params(1, MAX_LEN)))
    refused, output = engine.step()
    assert refusal([refused]).message.endswith(str(MAX_LEN))
    assert output == TokenOutput(0, answer(0)[0], None)
    assert set(finish(engine)) == {0}


def test_ids_are_checked() -> None:
    engine, _ = make(Sizes())
    family(engine)
    for id_ in (0, 1):
        with pytest.raises(ValueError, match=f"request {id_} is live already"):
            engine.fork(Fork(id_, 0, params(id_)))
        with pytest.raises(ValueError, match=f"request {id_} is live already"):
            engine.submit(Submit(id_, PROMPT, params(id_)))
