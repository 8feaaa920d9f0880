"""Random arrivals and aborts under a small pool: every answer is the one got alone."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_plan import VOCAB, Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor

from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Submit, TokenOutput
from tsruntime.sampling.params import SamplingParams

WHOLE = whole_weights()
SIZES = Sizes(pages=13, token_budget=8, extend=((8, 4),))


@cache
def alone(prompt: tuple[int, ...], count: int) -> list[int]:
    return tiny_greedy(WHOLE, list(prompt), count)


def prompt_of(number: int, length: int) -> tuple[int, ...]:
    """Prompts of one number begin alike, so that they meet in the prefix cache."""
    return tuple((number * 5 + i * i) % VOCAB for i in range(length))


REQUESTS = st.tuples(st.integers(0, 3), st.integers(1, 26), st.integers(1, 20), st.integers(-2, 2))
TURNS = st.lists(st.one_of(REQUESTS, st.integers(0, 12)), max_size=24)


@settings(max_examples=30, deadline=None)
@given(TURNS)
def test_answers_do_not_depend_on_what_comes_and_goes(
    turns: list[tuple[int, int, int, int] | int],
) -> None:
    """A turn submits a request, or aborts the one of that id if it lives; then two steps run."""
    plan = tiny_plan(SIZES)
    engine = Engine(plan, make_executor(plan), NoFollowers())
    submitted, aborted = dict[int, tuple[tuple[int, ...], int]](), set[int]()
    got = dict[int, list[int]]()

    def step() -> None:
        for event in engine.step():
            assert isinstance(event, TokenOutput)
            assert event.id not in aborted
            got.setdefault(event.id, []).append(event.token)

    for id_, turn in enumerate(turns):
        if isinstance(turn, int):
            engine.abort(turn)
            if turn in submitted and len(got.get(turn, ())) < submitted[turn][1]:
                aborted.add(turn)
        else:
            number, length, count, priority = turn
            submitted[id_] = (prompt_of(number, length), count)
            params = SamplingParams(max_tokens=count, temperature=0.0)
            command = Submit(id_, submitted[id_][0], params, priority)
            assert engine.submit(command) == []
        step()
        step()
    for _ in range(3000):
        if not engine.live:
            break
        step()
    assert engine.live == 0
    for id_, (prompt, count) in submitted.items():
        if id_ not in aborted:
            assert got[id_] == alone(prompt, count)
    stats = engine.stats
    assert stats.free_pages[0] + stats.cached_pages[0] == SIZES.pages - 1
