"""The engine drives its scheduler as the reference in Python says: the same prefix hits."""

from __future__ import annotations

import random

import pytest
from tiny_plan import MAX_LEN, VOCAB, Sizes, tiny_plan
from tiny_rows import make_executor

from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Submit, TokenOutput
from tsruntime.sampling.params import SamplingParams
from tsschedulers import reference_books
from tsschedulers.reference import Reference
from tsschedulers.reference_books import Step


class Mirror:
    """The reference, planned and committed as the engine does, with the engine's tokens."""

    def __init__(self, sizes: Sizes) -> None:
        self.reference = Reference(
            reference_books.Sizes(
                page_size=sizes.page_size,
                max_batch=sizes.max_batch,
                max_model_len=MAX_LEN,
                token_budget=sizes.token_budget,
                groups=((sizes.pages, None),),
                host_pages=sizes.host_pages,
            )
        )
        self.ahead = sizes.steps_in_flight > 1
        self.flight: Step | None = None
        self.hits: dict[int, int] = {}

    def step(self, said: dict[int, int], ended: set[int]) -> None:
        planned = self._plan() if self.ahead or self.flight is None else None
        if self.flight is None:
            self.flight, planned = planned, None
            if self.ahead or self.flight is None:
                assert said == {}
                return
        done, self.flight = self.flight, planned
        for ticket in (*done.stores, *done.loads):
            self.reference.transfer_done(ticket, True)
        if done.rows:
            tokens = {id_: [token] for id_, token in said.items()}
            self.reference.commit(done.step, tokens, ended)
        else:
            assert said == {}

    def _plan(self) -> Step | None:
        step = self.reference.plan()
        for id_, cached in step.admitted:
            self.hits.setdefault(id_, cached)
        return step if step.rows or step.stores or step.loads else None


@pytest.mark.parametrize("steps_in_flight", [1, 2])
@pytest.mark.parametrize("host_pages", [0, 9])
@pytest.mark.parametrize("seed", range(3))
def test_prefix_hits_are_those_of_the_reference(
    seed: int, host_pages: int, steps_in_flight: int
) -> None:
    """Conversations: each turn's prompt is an earlier one's with its answer and something new."""
    sizes = Sizes(
        pages=14,
        token_budget=8,
        extend=((8, 4),),
        host_pages=host_pages,
        steps_in_flight=steps_in_flight,
    )
    chance = random.Random(seed)
    plan, mirror = tiny_plan(sizes), Mirror(sizes)
    said: dict[int, list[int]] = {}
    prompts: list[tuple[int, ...]] = []
    cached: dict[int, int] = {}
    with Engine(plan, make_executor(plan), NoFollowers()) as engine:
        for turn in range(400):
            if turn < 100 and chance.random() < 0.3:
                old = chance.randrange(len(prompts)) if prompts and chance.random() < 0.8 else -1
                begin = (*prompts[old], *said.get(old, ())) if old >= 0 else ()
                new = tuple(chance.randrange(VOCAB) for _ in range(chance.randint(1, 9)))
                prompt = (*begin, *new)[:36]
                count = chance.randint(1, 14)
                params = SamplingParams(
                    count, temperature=0.0, stop_token_ids=(chance.randrange(VOCAB),)
                )
                assert engine.submit(Submit(len(prompts), prompt, params)) == []
                assert mirror.reference.submit(prompt, count) == len(prompts)
                prompts.append(prompt)
            if turn < 100 and prompts and chance.random() < 0.05:
                victim = chance.randrange(len(prompts))
                engine.abort(victim)
                mirror.reference.abort(victim)
            if not engine.busy:
                continue
            events = [event for event in engine.step() if isinstance(event, TokenOutput)]
            for event in events:
                said.setdefault(event.id, []).append(event.token)
                cached[event.id] = event.cached_tokens
            mirror.step(
                {event.id: event.token for event in events},
                {event.id for event in events if event.finish is not None},
            )
    assert not engine.busy
    assert cached == {id_: mirror.hits[id_] for id_ in cached}
    assert sum(cached.values()) > 0
    assert engine.report().prefix_hits == sum(mirror.hits.values())
    assert engine.stats.retractions == mirror.reference.retractions > 0
    assert list(engine.stats.free_pages) == [pool.free for pool in mirror.reference.cache.pools]
