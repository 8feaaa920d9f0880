"""CPU time that the HTTP process takes for a token: `python -m benchmarks.bench_frontend`.

The engine is a stand-in, a process of its own that gives every live request one token a step, so
that no model is needed. `--tokenizer` names a tokenizer.json; without it answers are token ids.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.http_streams import Load, await_server, requests, stream_all
from benchmarks.machine import cpu_seconds
from tsruntime.artifact.manifest import seal
from tsruntime.artifact.serving import Generation, Serving
from tsruntime.engine.messages import FinishReason, Ready, Shutdown, Submit, TokenOutput
from tsruntime.server.intake import Intake
from tsruntime.server.listen import bind
from tsruntime.server.serve import serve
from tsruntime.server.tokenizer import TextTokenizer

_IDS = range(300, 5_000)
"""Token ids that prompts are drawn from, whole words in most vocabularies."""

_NAME = "stand-in"


@dataclass(frozen=True, slots=True)
class StandIn:
    """The engine as the front end sees it; `lifeline` is readable once it has ended."""

    connection: Any
    lifeline: Any

    @property
    def sentinels(self) -> Sequence[int]:
        """One descriptor."""
        return (self.lifeline.fileno(),)

    def poll_failure(self) -> str | None:
        """It never fails."""
        return None

    def stop(self, grace: float) -> None:
        """It ends by itself."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=960)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--step-ms", type=float, default=7.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokenizer", type=Path)
    options = parser.parse_args()
    load = Load(options.streams, options.prompt_tokens, options.tokens)
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe(duplex=True)
    alive, life = context.Pipe(duplex=False)
    sock = bind("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    engine = context.Process(target=run_engine, args=(far, life, options.step_ms / 1e3))
    server = context.Process(
        target=run_server, args=(StandIn(near, alive), sock, options.tokenizer)
    )
    engine.start()
    server.start()
    for end in (near, far, alive, life, sock):
        end.close()
    try:
        print(measure(server, port, load, options.repeats))
    finally:
        server.terminate()
        server.join()
        engine.join()


def run_engine(connection: Connection, life: Connection, step: float) -> None:
    """Until told to stop: each step has the next token of every request, in one message."""
    live: dict[int, tuple[Submit, int]] = {}
    connection.send([Ready(0.0)])
    due = 0.0
    while True:
        while connection.poll(0 if live else None):
            for command in connection.recv():
                if isinstance(command, Shutdown):
                    return
                if isinstance(command, Submit):
                    live[command.id] = (command, 0)
        time.sleep(max(0.0, due - time.perf_counter()))
        due = time.perf_counter() + step
        events: list[TokenOutput] = []
        for id_, (submit, done) in list(live.items()):
            last = done + 1 == submit.params.max_tokens
            token = submit.tokens[done % len(submit.tokens)]
            events.append(TokenOutput(id_, token, FinishReason.LENGTH if last else None))
            live[id_] = (submit, done + 1)
            if last:
                del live[id_]
        connection.send(events)


def run_server(engine: StandIn, sock: socket.socket, tokenizer: Path | None) -> None:
    """`tsrun` without an artifact."""
    serving = Serving(
        name=_NAME,
        max_model_len=1 << 20,
        max_batch=256,
        vocab_size=1 << 20,
        world=1,
        chat=False,
        tokenizer_json=tokenizer,
        chat_template=None,
        generation=Generation(),
        manifest=seal(_NAME, {}, {}, {}, {}),
    )
    text = TextTokenizer(tokenizer) if tokenizer else None
    serve(engine, Intake(_NAME, serving, text, None), sock, "127.0.0.1")


def measure(server: BaseProcess, port: int, load: Load, repeats: int) -> str:
    """Medians over `repeats`, after one that warms up."""
    pid = server.pid
    assert pid is not None
    await_server(port)
    asyncio.run(stream_all(port, requests(_NAME, load, _IDS, 0), load.tokens))
    costs: list[float] = []
    rates: list[float] = []
    for number in range(1, repeats + 1):
        sent = requests(_NAME, load, _IDS, number)
        before, begin = cpu_seconds(pid), time.perf_counter()
        asyncio.run(stream_all(port, sent, load.tokens))
        rates.append(load.total / (time.perf_counter() - begin))
        costs.append((cpu_seconds(pid) - before) / load.total * 1e6)
    middle, rate = statistics.median(costs), statistics.median(rates)
    spread = f"{min(costs):.1f} to {max(costs):.1f}"
    return f"{middle:.1f} us of CPU a token ({spread}), {rate:.0f} tokens/s"


if __name__ == "__main__":
    main()
