"""Random arrivals, forks and aborts under a small pool: every answer is the one got alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_plan import VOCAB, Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor

from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Fork, Submit, TokenOutput
from tsruntime.sampling.params import SamplingParams

WHOLE = whole_weights()
PAGES = 13


@dataclass(frozen=True)
class New:
    """A request; prompts of one number begin alike, so that they meet in the prefix cache."""

    number: int
    length: int
    count: int
    priority: int
    forks: int

    @property
    def prompt(self) -> tuple[int, ...]:
        return tuple((self.number * 5 + i * i) % VOCAB for i in range(self.length))


@dataclass(frozen=True)
class Asked:
    """One sequence. A fork may not say some tokens, so that its answer parts from the parent's."""

    new: New
    fork: int = 0

    @property
    def banned(self) -> tuple[int, ...]:
        return tuple(range(self.fork - 1, VOCAB, 2)) if self.fork else ()

    @property
    def params(self) -> SamplingParams:
        count = self.new.count
        return SamplingParams(
            count, temperature=0.0, stop_token_ids=self.banned, min_tokens=count if self.fork else 0
        )

    @property
    def answer(self) -> list[int]:
        return alone(self.new.prompt, self.new.count, self.banned)


@cache
def alone(prompt: tuple[int, ...], count: int, banned: tuple[int, ...]) -> list[int]:
    return tiny_greedy(WHOLE, list(prompt), count, banned)


NEWS = st.builds(
    New,
    st.integers(0, 3),
    st.integers(1, 26),
    st.integers(1, 20),
    st.integers(-2, 2),
    st.sampled_from([0, 0, 0, 1, 2]),
)
TURNS = st.lists(st.one_of(NEWS, st.integers(0, 12)), max_size=24)


class Session:
    """An engine, what was asked of it, and what it said."""

    def __init__(self, sizes: Sizes) -> None:
        plan = tiny_plan(sizes)
        self.engine = Engine(plan, make_executor(plan), NoFollowers())
        self.asked = list[Asked]()
        self.aborted = set[int]()
        self.got = dict[int, list[int]]()

    def submit(self, new: New) -> None:
        first = len(self.asked)
        self.asked += [Asked(new, fork) for fork in range(new.forks + 1)]
        command = Submit(first, new.prompt, self.asked[first].params, new.priority)
        assert self.engine.submit(command) == []
        for id_ in range(first + 1, len(self.asked)):
            assert self.engine.fork(Fork(id_, first, self.asked[id_].params)) == []

    def abort(self, id_: int) -> None:
        assert self.engine.abort(id_) == []
        if id_ < len(self.asked) and len(self.got.get(id_, ())) < self.asked[id_].new.count:
            self.aborted.add(id_)

    def step(self) -> None:
        for event in self.engine.step():
            assert isinstance(event, TokenOutput)
            assert event.id not in self.aborted
            self.got.setdefault(event.id, []).append(event.token)

    def finish(self) -> None:
        for _ in range(5000):
            if not self.engine.busy:
                return
            self.step()
        raise AssertionError(f"{self.engine.live} requests live")


@pytest.mark.parametrize("steps_in_flight", [1, 2])
@pytest.mark.parametrize("host_pages", [0, 7, 40])
@settings(max_examples=8, deadline=None)
@given(turns=TURNS)
def test_answers_do_not_depend_on_what_comes_and_goes(
    host_pages: int, steps_in_flight: int, turns: list[New | int]
) -> None:
    """A turn submits a request, or aborts the one of that id if it lives; then two steps run."""
    sizes = Sizes(
        pages=PAGES,
        token_budget=8,
        extend=((8, 4),),
        host_pages=host_pages,
        steps_in_flight=steps_in_flight,
    )
    session = Session(sizes)
    with session.engine:
        for turn in turns:
            session.abort(turn) if isinstance(turn, int) else session.submit(turn)
            session.step()
            session.step()
        session.finish()
    assert session.engine.live == 0
    for id_, asked in enumerate(session.asked):
        if id_ not in session.aborted:
            assert session.got[id_] == asked.answer
    stats = session.engine.stats
    assert stats.free_pages[0] + stats.cached_pages[0] == PAGES - 1
    assert sum(stats.host_free_pages) + sum(stats.host_cached_pages) == host_pages
