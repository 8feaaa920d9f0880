"""Time every linear of a decode step, native against torch, beside the memory's read bandwidth.

    python benchmarks/bench_kernels.py [--threads N] [--rows 1,8,64] [--seconds 1.0]

The shapes are SmolLM2-135M's: 538 MB of float32 weights a token. Times are medians of one run of
all 121 products; GB/s counts each weight byte once. The curves of `tskernels.measured` come from
`--threads 1 --cpu-time`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tskernels import _cpu
from tskernels.kernel import BoundCall, Kernel
from tskernels.platform import cpu_arch, set_num_threads
from tskernels.registry import REGISTRY

LAYERS = 30
LAYER_SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))
HEAD_SHAPE = (49152, 576)
SOLUTIONS = ("native", "torch")


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run: threads, rows of x, seconds for each measurement, and which clock."""

    threads: int
    rows: tuple[int, ...]
    seconds: float
    clock: Callable[[], float]


def make_weights() -> list[Tensor]:
    """All weights of one step, each [N, K], in the order in which a step reads them."""
    shapes = [shape for _ in range(LAYERS) for shape in LAYER_SHAPES]
    return [torch.rand(n, k) for n, k in (*shapes, HEAD_SHAPE)]


def total_bytes(weights: Sequence[Tensor]) -> int:
    """Bytes of all weights."""
    return sum(w.numel() * w.element_size() for w in weights)


def bind(solution: str, weights: Sequence[Tensor], rows: int) -> list[Kernel]:
    """One kernel a weight; products of equal shape share their x and y."""
    inputs = {k: torch.rand(rows, k) for k in {w.shape[1] for w in weights}}
    outputs = {n: torch.empty(rows, n) for n in {w.shape[0] for w in weights}}
    spec = REGISTRY.resolve(f"linear.{solution}")
    return [
        spec.bind(BoundCall((inputs[w.shape[1]], w, None), (outputs[w.shape[0]],), {}))
        for w in weights
    ]


def median_time(run: Callable[[], object], settings: Settings) -> float:
    """Median seconds of `run`, warmed up once, over at least three runs and `settings.seconds`."""
    run()
    times: list[float] = []
    end = time.perf_counter() + settings.seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = settings.clock()
        run()
        times.append(settings.clock() - start)
    return statistics.median(times)


def read_bandwidth(weights: Sequence[Tensor], settings: Settings) -> float:
    """Bytes a second at which torch sums all weights: the memory's read speed, no products."""
    seconds = median_time(lambda: [w.sum() for w in weights], settings)
    return total_bytes(weights) / seconds


def measure(settings: Settings) -> None:
    """Print the table."""
    weights = make_weights()
    size = total_bytes(weights)
    bandwidth = read_bandwidth(weights, settings)
    print(f"{cpu_arch()} {_cpu.isa()}, {settings.threads} threads, {size / 1e6:.0f} MB of weights")
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s, so {size / bandwidth * 1e3:.1f} ms a step")
    titles = ("rows", "native ms", "GB/s", "GFLOP/s", "torch ms", "torch/native")
    print("{:>5} {:>10} {:>6} {:>8} {:>9} {:>13}".format(*titles))
    for rows in settings.rows:
        times: dict[str, float] = {}
        for solution in SOLUTIONS:
            kernels = bind(solution, weights, rows)
            times[solution] = median_time(lambda kernels=kernels: [k() for k in kernels], settings)
        native, other = times["native"], times["torch"]
        print(
            f"{rows:5d} {native * 1e3:10.1f} {size / native / 1e9:6.1f} "
            f"{size / 2 * rows / native / 1e9:8.1f} {other * 1e3:9.1f} {other / native:13.2f}"
        )


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description="Time the linears of a decode step.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rows", default="1,2,4,8,16,32,64")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measurement")
    parser.add_argument("--cpu-time", action="store_true", help="of the main thread, not wall time")
    args = parser.parse_args()
    rows = tuple(int(n) for n in str(args.rows).split(","))
    clock = time.thread_time if args.cpu_time else time.perf_counter
    set_num_threads(args.threads)
    measure(Settings(args.threads, rows, args.seconds, clock))


if __name__ == "__main__":
    main()
