"""Cost of compiling DeepSeek-V3 for 16 to 512 ranks: `python -m benchmarks compile`.

Each compilation is a process of its own, timed from after its imports.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Final

from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest, LimitsRequest
from tscompile.models.config import from_hf
from tscompile.passes.pipeline import compile_plan
from tskernels.schema import DType
from tsruntime.artifact.schema import Target

_CONFIG: Final = Path(__file__).parents[1] / "recipes" / "configs" / "deepseek-v3.json"
_RUNS: Final = 5

CASES: Final = (
    (ParallelSizes(16, 4, 16, moe_ep=16), 3.0),
    (ParallelSizes(256, 4, 256, moe_ep=256), 3.0),
    (ParallelSizes(512, 4, 16, moe_tp=2, moe_ep=256), 4.0),
)
"""Sizes, and the seconds that they may take."""


def request(sizes: ParallelSizes) -> CompileRequest:
    """Twelve buckets in bfloat16 on nodes of eight H200s, with the CPU's kernels."""
    return CompileRequest(
        name="deepseek-v3",
        model=from_hf(json.loads(_CONFIG.read_text(encoding="utf-8"))),
        dtype=DType.BFLOAT16,
        target=Target("cpu", "x86_64", f"h200-ib-{sizes.world // 8}x8"),
        parallel=sizes,
        buckets=Buckets(
            (1, 2, 4, 8, 16, 32, 64, 128), ((512, 128), (1024, 128), (2048, 128), (4096, 128))
        ),
        kv=KvCacheRequest(64, DType.BFLOAT16, memory=20_000_000_000),
        limits=LimitsRequest(8192, 128, 4096),
    )


def main() -> None:
    times: dict[int, list[float]] = {case: [] for case in range(len(CASES))}
    memory = dict.fromkeys(times, 0)
    for _ in range(_RUNS):
        for case in times:
            command = [sys.executable, "-m", "benchmarks.bench_compile", str(case)]
            said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
            seconds, megabytes = said.split()
            times[case].append(float(seconds))
            memory[case] = max(memory[case], int(megabytes))
    for (sizes, goal), found, peak in zip(CASES, times.values(), memory.values(), strict=True):
        print(
            f"world {sizes.world}: median {statistics.median(found):.2f} s, "
            f"{min(found):.2f} to {max(found):.2f} (goal {goal:.0f}), {peak} MB"
        )


def _once(case: int) -> None:
    began = time.perf_counter()
    compile_plan(request(CASES[case][0]))
    print(f"{time.perf_counter() - began:.3f}", getrusage(RUSAGE_SELF).ru_maxrss >> 10)


if __name__ == "__main__":
    _once(int(sys.argv[1]))
