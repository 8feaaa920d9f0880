"""Streams through HTTP beside the engine's own: `python -m benchmarks.bench_http ARTIFACT`.

Both runs have the same number of streams, prompts and tokens: `tsrun --bench` asks the engine,
the other one a `tsrun` that serves, by streamed completions of token ids. The engine is asked by
two processes, one before the server and one after it, the server three times; all runs are printed,
and the ratio is that of their medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.http_streams import Load, await_server, requests, stream_all
from benchmarks.machine import cpu_seconds
from tsruntime.artifact.serving import load_serving

_IDS = range(100)
"""Token ids that prompts are drawn from; every vocabulary has them."""

_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=960)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--trust-pack", action="append", default=[], metavar="SHA256")
    options = parser.parse_args()
    load = Load(options.streams, options.prompt_tokens, options.tokens)
    given = [str(options.artifact), *(f"--trust-pack={pack}" for pack in options.trust_pack)]
    sizes = [f"--prompt-tokens={options.prompt_tokens}", f"--tokens={options.tokens}"]
    bench = [*_tsrun(), *given, "--bench", "--json", f"--streams={options.streams}", *sizes]
    own = [_engine(bench)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    server = subprocess.Popen([*_tsrun(), *given, "--port", str(port)])
    try:
        await_server(port)
        served = asyncio.run(_measure(server.pid, port, load_serving(options.artifact).name, load))
    finally:
        server.terminate()
        server.wait()
    own.append(_engine(bench))
    for name, runs in (("engine", own), ("HTTP", served)):
        for run in runs:
            print(f"{name}: {run.text()}")
    print(f"HTTP / engine: {_rate(served) / _rate(own):.3f}")


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all streams: tokens a second, and the median of milliseconds to the first one.

    `busy` is the share of the time that the HTTP process took of a core, if there is one.
    """

    tokens_per_second: float
    first: float
    busy: float | None = None

    def text(self) -> str:
        """One line."""
        return f"{self.tokens_per_second:.0f} tokens/s, first token after {self.first:.0f} ms" + (
            "" if self.busy is None else f", {self.busy:.0%} of a core"
        )


def _rate(runs: Sequence[Figures]) -> float:
    return median(run.tokens_per_second for run in runs)


def _engine(command: Sequence[str]) -> Figures:
    done = subprocess.run(command, capture_output=True, check=True)
    report = json.loads(done.stdout)
    return Figures(float(report["tokens_per_second"]), float(report["ttft_median_ms"]))


def _tsrun() -> list[str]:
    return [sys.executable, "-c", "from tsruntime.cli import main; main()"]


async def _measure(pid: int, port: int, model: str, load: Load) -> list[Figures]:
    """The figures of some rounds, after one that warms up; clients' requests are made before."""
    warm_up = Load(load.streams, load.prompt, 4)
    await stream_all(port, requests(model, warm_up, _IDS, seed=1), warm_up.tokens)
    rounds: list[Figures] = []
    for seed in range(2, 2 + _ROUNDS):
        sent, before = requests(model, load, _IDS, seed), cpu_seconds(pid)
        arrivals = await stream_all(port, sent, load.tokens)
        rate = load.total / max(a.last for a in arrivals)
        busy = (cpu_seconds(pid) - before) / max(a.last for a in arrivals)
        first = median(a.first for a in arrivals)
        rounds.append(Figures(rate, first * 1e3, busy))
    return rounds


if __name__ == "__main__":
    main()
