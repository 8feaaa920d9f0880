"""Streams through HTTP beside the engine's own: `python -m benchmarks.bench_http ARTIFACT`.

Both runs have the same number of streams, prompts and tokens: `tsrun --bench` asks the engine,
the other one a `tsrun` that serves, by streamed completions of token ids.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

_IDS = 100
"""Token ids that prompts are drawn from; every vocabulary has them."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=960)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    given = [str(options.artifact)]
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
    server = subprocess.Popen([*_tsrun(), str(options.artifact), "--port", str(port)])
    try:
        through = asyncio.run(
            _measure(port, options.streams, options.prompt_tokens, options.tokens)
        )
    finally:
        server.terminate()
        server.wait()
    print(f"engine {own:.0f} tokens/s, HTTP {through:.0f} tokens/s: {through / own:.3f}")


def _tsrun() -> list[str]:
    return [sys.executable, "-c", "from tsruntime.cli import main; main()"]


async def _measure(port: int, streams: int, prompt_tokens: int, tokens: int) -> float:
    limits = httpx.Limits(max_connections=streams)
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, limits=limits, timeout=120) as client:
        model = await _ready(client)
        await _round(client, model, streams, prompt_tokens, 2, seed=1)
        begin = time.perf_counter()
        counts = await _round(client, model, streams, prompt_tokens, tokens, seed=2)
        return sum(counts) / (time.perf_counter() - begin)


async def _ready(client: httpx.AsyncClient) -> str:
    """Wait until the server answers; the model's name."""
    for _ in range(600):
        try:
            models = await client.get("/v1/models")
            return str(models.json()["data"][0]["id"])
        except (httpx.HTTPError, KeyError):
            await asyncio.sleep(0.1)
    raise TimeoutError("the server did not come up within a minute")


async def _round(
    client: httpx.AsyncClient, model: str, streams: int, prompt: int, tokens: int, *, seed: int
) -> list[int]:
    draw = random.Random(seed)
    prompts = [[draw.randrange(_IDS) for _ in range(prompt)] for _ in range(streams)]
    return await asyncio.gather(*(_stream(client, model, p, tokens) for p in prompts))


async def _stream(client: httpx.AsyncClient, model: str, prompt: list[int], tokens: int) -> int:
    """Tokens of one streamed completion, by its usage."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    count = 0
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and '"completion_tokens":' in line:
                count = int(json.loads(line[6:])["usage"]["completion_tokens"])
    return count


if __name__ == "__main__":
    main()
