"""Clients that stream completions and cost next to nothing, so that the server is what is measured.

A pooled client of a library took 23 ms of CPU for each of 64 requests made at once.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

_EVENT = b"data: {"
_END = b"data: [DONE]\n\n\r\n0\r\n\r\n"
"""How a stream ends: its last event, the chunk's end, and an empty chunk."""


@dataclass(frozen=True, slots=True)
class Load:
    """What clients ask for, all at once: `prompt` and `tokens` are lengths."""

    streams: int
    prompt: int
    tokens: int

    @property
    def total(self) -> int:
        """Tokens of all answers."""
        return self.streams * self.tokens


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When one stream's first token came, and its last, in seconds after all were asked for."""

    first: float
    last: float


def requests(model: str, load: Load, ids: Sequence[int], seed: int) -> list[bytes]:
    """What each client sends, prompts drawn from `ids`."""
    draw = random.Random(seed)
    prompts = [draw.choices(ids, k=load.prompt) for _ in range(load.streams)]
    return [_request(model, prompt, load.tokens) for prompt in prompts]


async def stream_all(port: int, sent: Sequence[bytes], tokens: int) -> list[Arrivals]:
    """All streams at once; RuntimeError unless each has all its tokens."""
    begin = time.perf_counter()
    found = await asyncio.gather(*(_stream(port, request, begin) for request in sent))
    counts = {count for count, _ in found}
    if counts != {tokens}:
        raise RuntimeError(f"asked for {tokens} tokens a stream, got {sorted(counts)}")
    return [arrivals for _, arrivals in found]


def _request(model: str, prompt: list[int], tokens: int) -> bytes:
    body: dict[str, object] = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def _stream(port: int, request: bytes, begin: float) -> tuple[int, Arrivals]:
    """Tokens of one streamed completion, by its usage, and when they came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    first, last = 0.0, b""
    while not last.endswith(_END):
        part = await reader.read(1 << 16)
        if not part:
            raise RuntimeError(f"the stream ended early: {last!r}")
        if not first and _EVENT in part:
            first = time.perf_counter() - begin
        last = (last + part)[-1024:]
    arrivals = Arrivals(first, time.perf_counter() - begin)
    writer.close()
    return int(last.rsplit(b'"completion_tokens":', 1)[1].split(b",")[0]), arrivals


def await_server(port: int, seconds: float = 60.0) -> None:
    """Wait until something listens; TimeoutError after so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"the server did not come up within {seconds:g} seconds")
