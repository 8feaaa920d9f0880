"""Streams through HTTP beside the engine's own: `python -m benchmarks.bench_http ARTIFACT`.

Both runs have the same number of streams, prompts and tokens: `tsrun --bench` asks the engine,
the other one a `tsrun` that serves, by streamed completions of token ids.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.http_streams import Load, await_server, stream_all
from tsruntime.artifact.serving import load_serving

_IDS = range(100)
"""Token ids that prompts are drawn from; every vocabulary has them."""


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
    engine = subprocess.run(
        [*_tsrun(), *given, "--bench", "--json", f"--streams={options.streams}", *sizes],
        capture_output=True,
        check=True,
    )
    own = float(json.loads(engine.stdout)["tokens_per_second"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    server = subprocess.Popen([*_tsrun(), *given, "--port", str(port)])
    try:
        await_server(port)
        through = asyncio.run(_measure(port, load_serving(options.artifact).name, load))
    finally:
        server.terminate()
        server.wait()
    print(f"engine {own:.0f} tokens/s, HTTP {through:.0f} tokens/s: {through / own:.3f}")


def _tsrun() -> list[str]:
    return [sys.executable, "-c", "from tsruntime.cli import main; main()"]


async def _measure(port: int, model: str, load: Load) -> float:
    """Tokens a second of all streams, after a round that warms up."""
    warm_up = Load(load.streams, load.prompt, 4)
    await stream_all(port, model, warm_up, _IDS, seed=1)
    begin = time.perf_counter()
    await stream_all(port, model, load, _IDS, seed=2)
    return load.total / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
