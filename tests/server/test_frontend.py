"""The front end over a pipe: streams, aborts, refusals, and an engine that goes away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine, Submit, token_id
from tokenizers import Tokenizer

from tsruntime.engine.messages import FinishReason, Fork
from tsruntime.sampling.params import SamplingParams
from tsruntime.server.errors import ApiError, EngineFailed
from tsruntime.server.frontend import Frontend
from tsruntime.server.intake import GenerationRequest
from tsruntime.server.stream import TokenStream
from tsruntime.server.tokenizer import TextTokenizer


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.stop(0)


@pytest.fixture
def text(artifact: Path) -> TextTokenizer:
    return TextTokenizer(artifact / "tokenizer" / "tokenizer.json")


def run(
    engine: FakeEngine, text: TextTokenizer | None, body: Callable[[Frontend], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with Frontend(engine, text) as frontend:
            await frontend.ready()
            await asyncio.wait_for(body(frontend), 20)

    asyncio.run(main())
    assert not [t for t in threading.enumerate() if t.name == "engine-writer"]


def ask(
    ids: tuple[int, ...],
    tokens: int,
    *stop: str,
    stop_token_ids: tuple[int, ...] = (),
    min_tokens: int = 0,
) -> GenerationRequest:
    params = SamplingParams(tokens, stop_token_ids=stop_token_ids, min_tokens=min_tokens)
    return GenerationRequest(ids, params, stop)


async def collect(stream: TokenStream) -> tuple[str, list[int], FinishReason | None]:
    text, finish = "", None
    tokens: list[int] = []
    async with stream:
        async for deltas in stream:
            for delta in deltas:
                text += delta.text
                tokens += delta.tokens
                finish = delta.finish
    return text, tokens, finish


def test_tokens_come_in_order_with_their_reason(engine: FakeEngine) -> None:
    async def body(frontend: Frontend) -> None:
        many = [ask((i, i + 1), 50 + i) for i in range(20)]
        answers = await asyncio.gather(*(collect(frontend.open([one])) for one in many))
        for i, (shown, tokens, finish) in enumerate(answers):
            assert shown == ""  # no tokenizer
            assert tokens == ([i, i + 1] * 40)[: 50 + i]
            assert finish is FinishReason.LENGTH
        assert frontend.live == 0

    run(engine, None, body)


def test_one_stream_of_several_sequences_and_its_usage(engine: FakeEngine) -> None:
    engine.cached_tokens = 2

    async def body(frontend: Frontend) -> None:
        requests = [ask((5, 6, 7), 4), ask((5, 6, 7), 4), ask((8,), 6), ask((8,), 6)]
        found: dict[int, list[int]] = {}
        async with frontend.open(requests) as stream:
            async for deltas in stream:
                for delta in deltas:
                    found.setdefault(delta.index, []).extend(delta.tokens)
        assert found == {0: [5, 6, 7, 5], 1: [5, 6, 7, 5], 2: [8] * 6, 3: [8] * 6}
        usage = stream.usage(choices=2)
        assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (4, 20, 4)

    run(engine, None, body)


def test_further_choices_fork_the_first_one_s_request(engine: FakeEngine) -> None:
    async def body(frontend: Frontend) -> None:
        await collect(frontend.open([ask((1,), 1)]))  # so that ids are no indices
        first, other = ask((5, 6), 3), ask((8,), 3)
        more = [replace(first, params=SamplingParams(3, seed=seed), fork=True) for seed in (1, 2)]
        again = replace(other, fork=True)
        found: dict[int, list[int]] = {}
        async with frontend.open([first, *more, other, again]) as stream:
            async for deltas in stream:
                for delta in deltas:
                    found.setdefault(delta.index, []).extend(delta.tokens)
        assert found == {0: [5, 6, 5], 1: [5, 6, 5], 2: [5, 6, 5], 3: [8] * 3, 4: [8] * 3}
        assert engine.forked == [
            Fork(2, 1, more[0].params),
            Fork(3, 1, more[1].params),
            Fork(5, 4, again.params),
        ]

    run(engine, None, body)


def test_the_refusal_of_a_prompt_is_told_once_for_all_its_choices(engine: FakeEngine) -> None:
    engine.refuse = lambda submit: "too long for the pool"

    async def body(frontend: Frontend) -> None:
        first = ask((1,), 5)
        with pytest.raises(ApiError, match="too long for the pool"):
            await collect(frontend.open([first, replace(first, fork=True)]))
        assert frontend.live == 0

    run(engine, None, body)


def test_stats_go_to_all_who_ask(engine: FakeEngine) -> None:
    async def body(frontend: Frontend) -> None:
        found = await asyncio.gather(frontend.stats(), frontend.stats())
        assert [stats.waiting for stats in found] == [3, 3]
        asked = asyncio.ensure_future(frontend.stats())
        await asyncio.sleep(0)
        asked.cancel()  # its client leaves
        assert (await frontend.stats()).prefix_hits == 60
        engine.die("rank 1 was killed")
        assert await frontend.failed() == "rank 1 was killed"
        with pytest.raises(ApiError, match="rank 1 was killed"):
            await frontend.stats()

    run(engine, None, body)


def test_a_stop_token_ends_without_text_and_a_stop_string_aborts(
    engine: FakeEngine, text: TextTokenizer, tokenizer: Tokenizer
) -> None:
    ids = tuple(tokenizer.encode("one two; three four; ").ids)
    semicolon = token_id(tokenizer, ";")

    async def body(frontend: Frontend) -> None:
        stopped = await collect(frontend.open([ask(ids, 100, stop_token_ids=(semicolon,))]))
        assert stopped[0] == "one two"
        assert stopped[1][-1] == semicolon
        assert stopped[2] is FinishReason.STOP
        assert engine.aborted == []
        shown, tokens, finish = await collect(frontend.open([ask(ids, 100, "thr", "ee f")]))
        assert (shown, finish) == ("one two; ", FinishReason.STOP)
        assert len(tokens) < 20
        await _until(lambda: engine.aborted == [1])

    run(engine, text, body)


def test_stop_strings_wait_for_min_tokens(
    engine: FakeEngine, text: TextTokenizer, tokenizer: Tokenizer
) -> None:
    ids = tuple(tokenizer.encode("a;b;c;").ids)
    assert len(ids) == 6

    async def body(frontend: Frontend) -> None:
        shown, _, _ = await collect(frontend.open([ask(ids, 30, ";", min_tokens=4)]))
        assert shown == "a;b"
        shown, _, _ = await collect(frontend.open([ask(ids, 30, ";", min_tokens=5)]))
        assert shown == "a;b;c"

    run(engine, text, body)


def test_leaving_a_stream_aborts_it(engine: FakeEngine) -> None:
    engine.step_seconds = 0.005

    async def body(frontend: Frontend) -> None:
        async with frontend.open([ask((1,), 10_000), ask((2,), 10_000), ask((3,), 1)]) as stream:
            await anext(stream)
            while 2 in frontend._live:  # pyright: ignore[reportPrivateUsage]
                await anext(stream)
        assert frontend.live == 0
        await _until(lambda: engine.aborted == [0, 1])
        assert (await collect(frontend.open([ask((9,), 2)])))[1] == [9, 9]

    run(engine, None, body)


def test_a_refusal_is_the_client_s_error(engine: FakeEngine) -> None:
    engine.refuse = lambda submit: "too long for the pool" if submit.tokens == (1,) else None

    async def body(frontend: Frontend) -> None:
        with pytest.raises(ApiError, match="too long for the pool") as caught:
            await collect(frontend.open([ask((1,), 5)]))
        assert caught.value.status == 400
        with pytest.raises(ApiError):
            await collect(frontend.open([ask((2,), 10_000), ask((1,), 5)]))
        await _until(lambda: engine.aborted == [1])

    run(engine, None, body)


def test_a_prompt_larger_than_the_pipe_does_not_block_the_loop(engine: FakeEngine) -> None:
    release = threading.Event()

    def reply(submit: Submit) -> list[int]:
        release.wait()  # the engine is in a long step and reads nothing meanwhile
        return [7]

    engine.reply = reply
    timer = threading.Timer(10, release.set)  # frees a loop that does block
    timer.start()

    async def body(frontend: Frontend) -> None:
        small = frontend.open([ask((1,), 1)])
        large = frontend.open([ask(tuple(range(100_000, 200_000)), 1)])
        await asyncio.sleep(0.05)
        assert not release.is_set()
        release.set()
        assert (await collect(small))[1] == (await collect(large))[1] == [7]

    run(engine, None, body)
    timer.cancel()
    timer.join()


@pytest.mark.parametrize("through_pipe", [False, True])
def test_streams_fail_with_the_engine(engine: FakeEngine, through_pipe: bool) -> None:
    engine.step_seconds = 0.005

    async def body(frontend: Frontend) -> None:
        async with frontend.open([ask((1,), 10_000)]) as stream:
            await anext(stream)
            (engine.fail if through_pipe else engine.die)("rank 1 was killed")
            with pytest.raises(ApiError, match="the engine has ended: rank 1 was killed") as caught:
                while True:
                    await anext(stream)
        assert caught.value.status == 503
        assert await frontend.failed() == "rank 1 was killed"
        with pytest.raises(ApiError, match="rank 1 was killed"):
            frontend.open([ask((1,), 1)])

    run(engine, None, body)


def test_an_engine_that_never_becomes_ready() -> None:
    engine = FakeEngine(ready=False)
    engine.die("rank 0 failed: error[TS0503]: a/: plan.json is missing\n  fix: rebuild")

    async def main() -> None:
        async with Frontend(engine, None) as frontend:
            with pytest.raises(EngineFailed) as caught:
                await asyncio.wait_for(frontend.ready(), 10)
            assert str(caught.value) == "error[TS0503]: a/: plan.json is missing\n  fix: rebuild"

    asyncio.run(main())
    engine.stop(0)


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
