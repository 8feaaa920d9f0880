"""What a token costs the HTTP process, in operations: a step has one for each of many streams."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from types import FrameType
from typing import Any

import openai
import pytest
from served_app import ServedApp

from tsruntime.engine.messages import Event, TokenOutput
from tsruntime.sampling.params import SamplingParams
from tsruntime.server.answers import Answer
from tsruntime.server.frontend import Frontend
from tsruntime.server.intake import GenerationRequest
from tsruntime.server.tokenizer import TextTokenizer
from tsruntime.server.wire import ChatWire, CompletionWire, Identity

STREAMS = 32
Wires = type[CompletionWire] | type[ChatWire]


class Steps:
    """An engine whose steps the test gives."""

    sentinels: Sequence[int] = ()

    def __init__(self) -> None:
        self.connection: Any
        self.far: Any
        self.connection, self.far = Pipe()

    def poll_failure(self) -> str | None:
        return None

    def stop(self, grace: float) -> None:
        pass


async def calls_of_a_step(
    tokenizer: TextTokenizer, kind: Wires
) -> tuple[Counter[str], list[bytes]]:
    """Calls by name that one step leads to once all streams run, and what they sent."""
    engine, sent, called = Steps(), list[bytes](), Counter[str]()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def step(token: int) -> None:
        events: list[Event] = [TokenOutput(id_, token, None) for id_ in range(STREAMS)]
        engine.far.send(events)
        await asyncio.sleep(0.2)

    def note(frame: FrameType, event: str, given: Any) -> None:
        if event == "call":
            called[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            called[given.__qualname__] += 1

    async with Frontend(engine, tokenizer) as frontend:
        running: list[asyncio.Task[None]] = []
        for _ in range(STREAMS):
            stream = frontend.open([GenerationRequest((70, 71), SamplingParams(100))])
            wire = kind(Identity.new("x", "m"), tokenizer.pieces)
            answer = Answer(stream, wire, sequences=1, n=1, events=True)
            running.append(asyncio.ensure_future(answer({}, receive, send)))
        await step(72)
        sent.clear()
        sys.setprofile(note)
        await step(73)
        sys.setprofile(None)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return called, list(sent)


@pytest.mark.parametrize("kind", [CompletionWire, ChatWire])
def test_a_step_is_one_message_and_a_token_one_wake_up_and_one_send(
    artifact: Path, kind: Wires
) -> None:
    tokenizer = TextTokenizer(artifact / "tokenizer" / "tokenizer.json")
    called, sent = asyncio.run(calls_of_a_step(tokenizer, kind))
    assert len(sent) == STREAMS
    assert all(b'"finish_reason":null' in body for body in sent)
    assert called["_ConnectionBase.recv"] == 1
    assert called["Frontend._token"] == STREAMS
    assert called["BaseEventLoop.call_soon"] < STREAMS + 10  # beside the test's own sleep
    assert called["BaseEventLoop.create_future"] < STREAMS + 10
    assert not [name for name in called if name.startswith(("JSONEncoder", "_dataclass"))]
    assert called.total() / STREAMS < 65


def test_a_request_asks_the_system_for_no_randomness(
    served: ServedApp, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a call may take longer than all else; ids and seeds are unlike all the same."""
    asked = Counter[str]()

    def urandom(size: int) -> bytes:
        asked[threading.current_thread().name] += 1
        return real(size)

    real = os.urandom
    for module in (random, os):
        monkeypatch.setattr(module, "_urandom" if module is random else "urandom", urandom)
    answers = [client.completions.create(model="tiny", prompt="a", n=3) for _ in range(8)]
    assert "served" not in asked
    assert len({answer.id for answer in answers}) == 8
    assert len({made.params.seed for made in served.engine.submitted[-24:]}) == 24
