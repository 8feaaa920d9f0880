"""The engine as the front end's event loop sees it: token streams over the engine's pipe."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, Protocol, Self

from tsruntime.engine.messages import (
    Abort,
    AskStats,
    Command,
    EngineStats,
    Event,
    Failed,
    FinishReason,
    Fork,
    Ready,
    Refused,
    Shutdown,
    Submit,
    TokenOutput,
)
from tsruntime.server.errors import ApiError, EngineFailed
from tsruntime.server.intake import GenerationRequest
from tsruntime.server.stream import LiveSequence, TokenStream
from tsruntime.server.tokenizer import TextTokenizer

_READS_A_TURN: Final = 16
"""Messages taken off the pipe before the event loop turns to its clients."""


class Engine(Protocol):
    """The ranks' processes, as `tsruntime.workers` launches them."""

    @property
    def connection(self) -> Connection[list[Command], list[Event]]:
        """Carries lists of commands to the engine and lists of events back."""
        ...

    @property
    def sentinels(self) -> Sequence[int]:
        """File descriptors, each readable once its process has ended."""
        ...

    def poll_failure(self) -> str | None:
        """One line about a process that has failed, or None."""
        ...

    def stop(self, grace: float) -> None:
        """Wait up to `grace` seconds for the processes to end, then kill them."""
        ...


@dataclass(slots=True)
class Counts:
    """Tokens of prompts that have been computed, tokens generated, and why sequences ended."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter[str])

    def add(self, sequence: LiveSequence, finish: FinishReason | None) -> None:
        """One more token of `sequence`, which it has counted already."""
        self.generation_tokens += 1
        if sequence.generated == 1:
            self.prompt_tokens += len(sequence.request.tokens)
        if finish is not None:
            self.finished[finish.value] += 1


class Frontend:
    """Submits requests to the engine and hands its tokens out; one event loop owns it.

    Commands are written by a thread, since a long prompt may fill the pipe while the engine is in
    a step, and the loop must not wait for it.
    """

    def __init__(self, engine: Engine, tokenizer: TextTokenizer | None) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[float] = self._loop.create_future()
        self._failed: asyncio.Future[str] = self._loop.create_future()
        self._ids = itertools.count()
        self._live: dict[int, tuple[TokenStream, int]] = {}
        self._asked: list[asyncio.Future[EngineStats]] = []
        self.counts = Counts()
        self._commands: queue.SimpleQueue[list[Command] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="engine-writer", daemon=True)

    @property
    def failure(self) -> str | None:
        """Why the engine ended, in one line; None while it runs."""
        return self._failed.result() if self._failed.done() else None

    @property
    def live(self) -> int:
        """Sequences in flight."""
        return len(self._live)

    async def ready(self) -> float:
        """Wait until the engine is loaded; gives its loading time in seconds.

        Raises EngineFailed if it ends instead.
        """
        await asyncio.wait({self._ready, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            raise EngineFailed(self._failed.result())
        return self._ready.result()

    async def failed(self) -> str:
        """Wait until the engine fails, if it ever does; gives the reason in one line."""
        return await asyncio.shield(self._failed)

    def open(self, requests: Sequence[GenerationRequest]) -> TokenStream:
        """Submit `requests` together. Raises ApiError (503) if the engine has ended."""
        if self._failed.done():
            raise _unavailable(self._failed.result())
        stream = TokenStream(requests, self._tokenizer, self._abandon)
        commands: list[Command] = []
        parent = -1
        for index, request in enumerate(requests):
            id_ = next(self._ids)
            self._live[id_] = (stream, index)
            if request.fork:
                commands.append(Fork(id_, parent, request.params))
            else:
                parent = id_
                commands.append(Submit(id_, request.tokens, request.params))
        self._commands.put(commands)
        return stream

    async def stats(self) -> EngineStats:
        """The engine's counters, as of the end of its step. Raises ApiError (503) as `open`."""
        if self._failed.done():
            raise _unavailable(self._failed.result())
        answer: asyncio.Future[EngineStats] = self._loop.create_future()
        self._asked.append(answer)
        self._commands.put([AskStats()])
        return await answer

    async def __aenter__(self) -> Self:
        self._writer.start()
        self._loop.add_reader(self._engine.connection.fileno(), self._read)
        for sentinel in self._engine.sentinels:
            self._loop.add_reader(sentinel, self._process_ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ask the engine to stop at once; `Engine.stop` waits for it."""
        self._stop_reading()
        if not self._failed.done():
            self._commands.put([Shutdown(drain=False)])
        self._commands.put(None)
        self._writer.join(timeout=1.0)

    def _stop_reading(self) -> None:
        self._loop.remove_reader(self._engine.connection.fileno())
        for sentinel in self._engine.sentinels:
            self._loop.remove_reader(sentinel)

    def _write(self) -> None:
        """The writer thread: ends at None, or when the engine is gone."""
        while (commands := self._commands.get()) is not None:
            try:
                self._engine.connection.send(commands)
            except OSError:
                return  # the reading side sees the end of the pipe and reports it

    def _read(self) -> None:
        connection = self._engine.connection
        try:
            for _ in range(_READS_A_TURN):
                if not connection.poll():
                    return
                for event in connection.recv():
                    if isinstance(event, TokenOutput):
                        self._token(event)
                    else:
                        self._take(event)
        except (EOFError, OSError):
            self._fail(self._engine.poll_failure() or "the engine closed its pipe unexpectedly")

    def _process_ended(self) -> None:
        self._read()  # the engine's own last words, if there are any, say more
        if not self._failed.done():
            self._fail(self._engine.poll_failure() or "an engine process ended unexpectedly")

    def _take(self, event: Refused | EngineStats | Ready | Failed) -> None:
        match event:
            case Refused(id_, message):
                stream, _ = self._live.pop(id_, (None, 0))
                if stream is not None:
                    stream.fail(ApiError(message))
            case EngineStats():
                for answer in self._asked:
                    if not answer.done():  # its client may have gone
                        answer.set_result(event)
                self._asked.clear()
            case Ready(seconds):
                if not self._ready.done():
                    self._ready.set_result(seconds)
            case Failed(message):
                self._fail(message)

    def _token(self, output: TokenOutput) -> None:
        stream, index = self._live.get(output.id, (None, 0))
        if stream is None:
            return  # sent before the engine saw the abort
        finish = stream.push(index, output)
        self.counts.add(stream.sequence(index), finish)
        if finish is None:
            return
        del self._live[output.id]
        if output.finish is None:  # a stop string, which the engine knows nothing of
            self._commands.put([Abort(output.id)])

    def _abandon(self, stream: TokenStream) -> None:
        running = [id_ for id_, (owner, _) in self._live.items() if owner is stream]
        for id_ in running:
            del self._live[id_]
        self.counts.finished["abort"] += len(running)
        if running:
            self._commands.put([Abort(id_) for id_ in running])

    def _fail(self, message: str) -> None:
        if self._failed.done():
            return
        self._failed.set_result(message)
        self._stop_reading()
        streams = {id(stream): stream for stream, _ in self._live.values()}
        self._live.clear()
        for stream in streams.values():
            stream.fail(_unavailable(message))
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(_unavailable(message))
        self._asked.clear()


def _unavailable(message: str) -> ApiError:
    return ApiError(f"the engine has ended: {message}", status=503)
