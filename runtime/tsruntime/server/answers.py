"""Sends a token stream to a client, whole or event by event, and stops when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tsruntime.server.errors import ApiError
from tsruntime.server.stream import Delta, TokenStream
from tsruntime.server.wire import DONE, Choice, Wire, event

_JSON_HEADERS: Final = [(b"content-type", b"application/json")]
_EVENT_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Answer(Response):
    """The answer made of `stream`: `sequences` of them, `n` for each prompt.

    Nothing is sent before the engine has accepted the request, so that a refusal still has its
    own status. When the client disconnects, what runs is aborted.
    """

    def __init__(
        self,
        stream: TokenStream,
        wire: Wire,
        *,
        sequences: int,
        n: int,
        events: bool,
        usage: bool = False,
    ) -> None:
        self._stream = stream
        self._wire = wire
        self._sequences = sequences
        self._n = n
        self._events = events
        self._usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        async with self._stream:
            sending = self._send_events(send) if self._events else self._send_whole(send)
            await _while_connected(receive, sending)

    async def _send_whole(self, send: Send) -> None:
        choices = [Choice() for _ in range(self._sequences)]
        async for deltas in self._stream:
            for delta in deltas:
                choices[delta.index].add(delta)
        body = self._wire.whole(choices, self._stream.usage(self._n))
        headers = [*_JSON_HEADERS, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _send_events(self, send: Send) -> None:
        first = await anext(self._stream)
        await send({"type": "http.response.start", "status": 200, "headers": _EVENT_HEADERS})
        await _write(send, self._wire.begin(self._sequences) + self._chunks(first))
        try:
            async for deltas in self._stream:
                await _write(send, self._chunks(deltas))
        except ApiError as error:  # the status is gone; clients look for this event
            last = event(error.body())
        else:
            last = self._wire.usage(self._stream.usage(self._n)) if self._usage else b""
        await send({"type": "http.response.body", "body": last + DONE})

    def _chunks(self, deltas: list[Delta]) -> bytes:
        return b"".join(map(self._wire.chunk, deltas))


async def _write(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _while_connected(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Run `work`, or as much of it as happens before the client disconnects."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
        await asyncio.wait({working, leaving})
    if not working.cancelled():
        working.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
