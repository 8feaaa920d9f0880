"""`tsrun --bench`: throughput and latencies of the engine, without HTTP in between."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Final

from rich.console import Console
from rich.table import Table

from tsruntime.sampling.params import SamplingParams
from tsruntime.server.errors import ApiError, BenchTooLarge, EngineFailed
from tsruntime.server.frontend import Engine, Frontend
from tsruntime.server.intake import GenerationRequest, Intake
from tsruntime.server.loading import ready_frontend

_WARM_UP_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` requests at once, each of `prompt_tokens` and generating `tokens`."""

    streams: int
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """When one request was submitted and when each of its tokens came, in seconds."""

    submitted: float
    arrivals: tuple[float, ...]

    @property
    def first(self) -> float:
        """Time to the first token, seconds."""
        return self.arrivals[0] - self.submitted

    @property
    def gaps(self) -> list[float]:
        """Seconds between tokens."""
        return [b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run measured; latencies in milliseconds."""

    model: str
    streams: int
    prompt_tokens: int
    tokens: int
    seconds: float
    tokens_per_second: float
    ttft_median_ms: float
    ttft_p99_ms: float
    itl_median_ms: float
    itl_p99_ms: float


def run_bench(engine: Engine, intake: Intake, load: Load, *, as_json: bool) -> None:
    """Run `load` and print the report on standard output.

    Raises BenchTooLarge and EngineFailed.
    """
    limit = intake.serving.max_model_len
    if load.prompt_tokens + load.tokens > limit:
        raise BenchTooLarge(load.prompt_tokens, load.tokens, limit)
    report = asyncio.run(_measure(engine, intake, load))
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        Console(file=sys.stdout).print(table(report))


def summarize(model: str, load: Load, timelines: Sequence[Timeline]) -> Report:
    """The report of `timelines`; seconds run from the first submission to the last token."""
    started = min(line.submitted for line in timelines)
    seconds = max(line.arrivals[-1] for line in timelines) - started
    firsts = [line.first for line in timelines]
    gaps = [gap for line in timelines for gap in line.gaps] or [0.0]
    return Report(
        model=model,
        streams=load.streams,
        prompt_tokens=load.prompt_tokens,
        tokens=load.tokens,
        seconds=seconds,
        tokens_per_second=sum(len(line.arrivals) for line in timelines) / seconds,
        ttft_median_ms=1e3 * percentile(firsts, 50),
        ttft_p99_ms=1e3 * percentile(firsts, 99),
        itl_median_ms=1e3 * percentile(gaps, 50),
        itl_p99_ms=1e3 * percentile(gaps, 99),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of `values` that `percent` of them do not exceed (nearest rank)."""
    return sorted(values)[max(ceil(len(values) * percent / 100) - 1, 0)]


def table(report: Report) -> Table:
    """The report for people."""
    shown = Table(title=f"{report.model}: {report.streams} streams", show_header=False)
    shown.add_row("prompt tokens a stream", f"{report.prompt_tokens}")
    shown.add_row("output tokens a stream", f"{report.tokens}")
    shown.add_row("duration", f"{report.seconds:.2f} s")
    shown.add_row("output tokens/s", f"{report.tokens_per_second:.1f}")
    shown.add_row("time to first token, median", f"{report.ttft_median_ms:.1f} ms")
    shown.add_row("time to first token, p99", f"{report.ttft_p99_ms:.1f} ms")
    shown.add_row("inter-token latency, median", f"{report.itl_median_ms:.1f} ms")
    shown.add_row("inter-token latency, p99", f"{report.itl_p99_ms:.1f} ms")
    return shown


def prompts(load: Load, vocab_size: int, seed: int) -> list[GenerationRequest]:
    """Random greedy requests that no stop token ends; each prompt is another one."""
    draw = random.Random(seed)
    params = SamplingParams(max_tokens=load.tokens, temperature=0.0)
    return [
        GenerationRequest(
            tuple(draw.randrange(vocab_size) for _ in range(load.prompt_tokens)), params
        )
        for _ in range(load.streams)
    ]


async def _measure(engine: Engine, intake: Intake, load: Load) -> Report:
    vocab_size = intake.serving.vocab_size
    async with ready_frontend(engine, intake) as frontend:
        short = Load(load.streams, load.prompt_tokens, min(load.tokens, _WARM_UP_TOKENS))
        try:
            await _run(frontend, prompts(short, vocab_size, seed=1))
            timelines = await _run(frontend, prompts(load, vocab_size, seed=2))
        except ApiError as error:
            raise EngineFailed(frontend.failure or error.message) from error
    return summarize(intake.name, load, timelines)


async def _run(frontend: Frontend, requests: Sequence[GenerationRequest]) -> list[Timeline]:
    return await asyncio.gather(*(_time(frontend, request) for request in requests))


async def _time(frontend: Frontend, request: GenerationRequest) -> Timeline:
    submitted = time.perf_counter()
    arrivals: list[float] = []
    async with frontend.open([request]) as stream:
        async for deltas in stream:
            now = time.perf_counter()
            arrivals += [now for delta in deltas for _ in delta.tokens]
    return Timeline(submitted, tuple(arrivals))
