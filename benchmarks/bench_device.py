"""Decode steps of an artifact on this machine's GPU, beside their floor and cuBLAS's linears.

    python -m benchmarks.bench_device ARTIFACT [--context 1024] [--prefill 1024 2048] [--mixed 512]
        [--eager recipes/configs/qwen3-8b.json]
        [--trust-pack DIGEST] [--out FILE]

Of each decode program: milliseconds of a whole step (inputs written and copied, graphs, sampled
tokens read), of the graphs alone, of each kind of draw, and of each kind of op in a graph of its
own; floors count every byte once at the speed at which this GPU reads memory. `gap` is what 1,000
steps take over 1,000 replays of their graphs, each, in microseconds: steps as the engine has them,
each launched before the tokens of the last one are read; `steady` is what each of those steps
takes, in milliseconds. A mixed step decodes all sequences of an
extend program but one, at `--context`, and fills its rows with the first ones of a prompt.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import torch

from benchmarks.device_batches import NONE, chunk, decode_batch, mixed_batch
from tskernels.ops.sampling.words import DrawKind
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.schema import ArenaStorage, Op, Phase, Plan, Program, WeightStorage
from tsruntime.executor.batch import ForwardBatch
from tsruntime.executor.bind import VIEW_PIN
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.device import DeviceExecutor
from tsruntime.executor.loading import DeviceWeights
from tsruntime.graphs.cuda import CudaGraph
from tsruntime.sampling.params import SamplingParams
from tsruntime.sampling.table import DrawTable

READ_SPEED = 4.56e12
"""Bytes a second that an H200 reads at best, measured (docs/performance.md)."""
REPLAYS = 50
_STEADY = 1_000
_PRODUCTS = ("linear", "linear_silu_mul", "scaled_linear", "scaled_linear_silu_mul")


@dataclass(frozen=True, slots=True)
class Group:
    """All ops of one kind in a program: milliseconds in a graph of their own, and the floor's."""

    name: str
    launches: int
    milliseconds: float
    floor: float


@dataclass(frozen=True, slots=True)
class Row:
    """One program's figures, in milliseconds."""

    program: str
    context: int
    step: float
    graph: float
    floor: float
    cublas: float
    steady: float
    gap: float
    draws: dict[str, float]
    groups: tuple[Group, ...]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--prefill", type=int, nargs="*", default=[])
    parser.add_argument("--no-decode", action="store_true", help="Only what else is asked for.")
    parser.add_argument("--mixed", type=int, nargs="*", default=[], metavar="ROWS")
    parser.add_argument("--trust-pack", nargs="*", default=[])
    parser.add_argument(
        "--eager", type=Path, help="config.json: transformers' eager step beside it"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    plan = load_plan(options.artifact)
    manifest = read_manifest(options.artifact)
    code = load_code(options.artifact, manifest, plan, options.trust_pack)
    torch.set_grad_enabled(False)
    torch.zeros(1, device="cuda")
    at = time.perf_counter()
    weights = DeviceWeights(options.artifact, plan, 0, "cuda:0")
    executor = DeviceExecutor(plan, 0, weights, lambda _: LocalCommunicator(), code)
    ready = time.perf_counter()
    print(f"plan and CUDA {at - started:.2f} s, weights, memory and graphs {ready - at:.2f} s")
    rows = [
        measure(executor, index, options.context)
        for index, program in enumerate(plan.programs)
        if program.phase is Phase.DECODE and not options.no_decode
    ]
    for row in rows:
        show(row)
    if options.eager:
        took = eager_step(options.eager, options.context)
        print(f"transformers, eager, batch 1 at {options.context}: step {took:.1f} ms")
    for tokens in options.prefill:
        took = statistics.median(prefill(executor, tokens) for _ in range(3))
        print(f"prefill of {tokens} tokens: {took:.2f} ms, the last chunk's ops:")
        show_groups(_groups(executor, _chunk_program(plan, tokens), tokens))
    for rows in options.mixed:
        show_mixed(executor, rows, options.context)
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def eager_step(config: Path, context: int) -> float:
    """Milliseconds of a decode step of transformers, run eagerly in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.transformers_step", str(config), str(context)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])["milliseconds"]


def show(row: Row) -> None:
    print(
        f"{row.program} at {row.context}: step {row.step:.3f} ms, graph {row.graph:.3f},"
        f" floor {row.floor:.3f}, cuBLAS's linears {row.cublas:.3f}, steady {row.steady:.3f},"
        f" gap {row.gap:.1f} us"
    )
    print("    draws:", ", ".join(f"{kind} {took:.1f} us" for kind, took in row.draws.items()))
    show_groups(row.groups)


def show_groups(groups: Sequence[Group]) -> None:
    for group in groups:
        each = group.milliseconds * 1e3 / group.launches
        print(
            f"    {group.name:42} {group.launches:4} x {each:8.2f} us ="
            f" {group.milliseconds:7.3f} ms, floor {group.floor:7.3f}"
        )


def measure(executor: DeviceExecutor, index: int, context: int) -> Row:
    plan, program = executor.plan, executor.plan.programs[index]
    batch = decode_batch(plan, index, context)
    executor.run(batch)
    batch = replace(batch, groups=tuple(replace(g, table_deltas=NONE) for g in batch.groups))
    steps: list[float] = []
    for _ in range(REPLAYS):
        begin = time.perf_counter()
        executor.run(batch)
        steps.append(time.perf_counter() - begin)
    groups = tuple(_groups(executor, index, context))
    steady = steady_step(executor, batch)
    return Row(
        program.name,
        context,
        statistics.median(steps) * 1e3,
        executor.replay(index, REPLAYS),
        sum(group.floor for group in groups),
        cublas(executor, program),
        steady,
        (steady - executor.replay(batch.program, _STEADY)) * 1e3,
        draw_times(executor, index),
        groups,
    )


def steady_step(executor: DeviceExecutor, batch: ForwardBatch) -> float:
    """Milliseconds of a step in a row of many.

    Every row takes the token that the step before drew, so that each step waits for the last one.
    """
    fed = replace(batch, token_ids=np.full_like(batch.token_ids, -1))
    waiting = executor.launch(batch)
    begin = time.perf_counter()
    for _ in range(_STEADY):
        following = executor.launch(fed)
        waiting()
        waiting = following
    waiting()
    return (time.perf_counter() - begin) / _STEADY * 1e3


def draw_times(executor: DeviceExecutor, index: int) -> dict[str, float]:
    """Microseconds of each kind of draw in a graph of its own, all filters asked for."""
    program = executor.plan.programs[index]
    params = SamplingParams(1, 0.8, top_p=0.95, top_k=1000, min_p=1e-4, repetition_penalty=1.1)
    table = DrawTable(executor.plan.vocab_size, executor.plan.limits.max_batch)
    slots = np.arange(program.sequences, dtype=np.int32)
    for slot in slots.tolist():
        table.restore(slot, params, (1, 2, 3), ())
    batch = decode_batch(executor.plan, index, 64)
    drawn = table.draws(slots, batch.positions, np.ones(len(slots), np.bool_))
    executor.run(replace(batch, draws=drawn))
    return {
        str(kind): timed(executor, executor.draw_kernels(index, kind)) * 1e3 for kind in DrawKind
    }


def prefill(executor: DeviceExecutor, tokens: int) -> float:
    """Milliseconds for the first `tokens` of one sequence, in the largest chunks that fit."""
    plan = executor.plan
    index = _chunk_program(plan, tokens)
    size = plan.programs[index].tokens
    batches = [
        chunk(plan, index, first, min(first + size, tokens)) for first in range(0, tokens, size)
    ]
    executor.run(batches[0])
    begin = time.perf_counter()
    for batch in batches:
        executor.run(batch)
    return (time.perf_counter() - begin) * 1e3


def show_mixed(executor: DeviceExecutor, rows: int, context: int) -> None:
    """A step of decodes and a prompt's rows together, and its ops."""
    index = _chunk_program(executor.plan, rows)
    batch = mixed_batch(executor.plan, index, context)
    executor.run(batch)
    times: list[float] = []
    for _ in range(REPLAYS):
        begin = time.perf_counter()
        executor.run(batch)
        times.append(time.perf_counter() - begin)
    decodes, first = batch.num_sequences - 1, int(batch.seq_lens[-1])
    print(
        f"{decodes} decodes at {context} and {first} rows of a prompt:"
        f" {statistics.median(times) * 1e3:.2f} ms, its ops:"
    )
    show_groups(_groups(executor, index, context))


def _chunk_program(plan: Plan, tokens: int) -> int:
    """The largest extend program that the tokens fill, or the smallest one."""
    sizes = {p.tokens: i for i, p in enumerate(plan.programs) if p.phase is Phase.EXTEND}
    return sizes[max([size for size in sizes if size <= tokens] or [min(sizes)])]


def _groups(executor: DeviceExecutor, index: int, context: int) -> list[Group]:
    program = executor.plan.programs[index]
    ops = [op for op in program.ops if op.pin != VIEW_PIN]
    kernels = executor.kernels(index)[1:]  # without the one that feeds
    kinds: dict[str, list[tuple[Op, Callable[[], None]]]] = {}
    for op, kernel in zip(ops, kernels, strict=True):
        kinds.setdefault(_kind(program, op), []).append((op, kernel))
    found: list[Group] = []
    for name, members in kinds.items():
        repeats = -(-36 // len(members))
        run = [kernel for _, kernel in members] * repeats
        milliseconds = timed(executor, run) / repeats
        floor = sum(_bytes(executor.plan, program, op, context) for op, _ in members) / READ_SPEED
        found.append(Group(name, len(members), milliseconds, floor * 1e3))
    return found


def timed(executor: DeviceExecutor, kernels: Sequence[Callable[[], None]]) -> float:
    """Milliseconds of one replay of a graph of `kernels`, on the executor's stream."""
    torch.cuda.synchronize()
    graph = CudaGraph(kernels, executor.stream)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(executor.stream):
        graph.replay()
        begin.record()
        for _ in range(10):
            graph.replay()
        end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 10


def _kind(program: Program, op: Op) -> str:
    shapes = {value.name: value.shape for value in program.values}
    name = op.inputs[1] if op.op in _PRODUCTS else None
    return f"{op.pin} {'x'.join(map(str, shapes[name])) if name else ''}".strip()


def _bytes(plan: Plan, program: Program, op: Op, context: int) -> float:
    """Bytes that an op must move: weights, activations, and the cache as far as it is read."""
    values = {value.name: value for value in program.values}
    total = 0.0
    for name in {*op.inputs, *op.outputs} - {None}:
        assert name is not None
        value = values[name]
        if op.op == "embedding" and isinstance(value.storage, WeightStorage):
            continue
        if isinstance(value.storage, ArenaStorage | WeightStorage):
            total += value.dtype.itemsize * prod(value.shape)
    if op.op == "attention":
        (cache,) = [values[n] for n in op.inputs if n and values[n].storage.kind == "cache"]
        token = prod(cache.shape) // (cache.shape[0] * cache.shape[3])
        sequences = program.sequences if program.phase is Phase.DECODE else 1
        total += sequences * context * token * cache.dtype.itemsize
    return total


def cublas(executor: DeviceExecutor, program: Program) -> float:
    """Milliseconds of a graph of all products of the program by torch, which calls cuBLAS.

    Those with scaled weights too, as if the weights had the plan's dtype.
    """
    shapes = {value.name: value for value in program.values}
    calls: list[tuple[int, int, int]] = []
    for op in program.ops:
        if op.op in _PRODUCTS and op.inputs[0] and op.inputs[1]:
            x, weight = shapes[op.inputs[0]], shapes[op.inputs[1]]
            calls.append((x.shape[0], weight.shape[0], weight.shape[1]))
    distinct = {call: _products(call, executor.plan) for call in set(calls)}
    turns = dict.fromkeys(distinct, 0)

    def turn(call: tuple[int, int, int]) -> Callable[[], None]:
        made = distinct[call]
        turns[call] += 1
        return made[turns[call] % len(made)]

    return timed(executor, [turn(call) for call in calls])


def _products(call: tuple[int, int, int], plan: Plan) -> list[Callable[[], None]]:
    rows, n, k = call
    kind = plan.dtype.torch
    x = torch.randn(rows, k, device="cuda", dtype=kind)
    y = torch.empty(rows, n, device="cuda", dtype=kind)
    count = max(2, min(8, 400_000_000 // (2 * n * k) + 1))
    weights = torch.randn(count, n, k, device="cuda", dtype=kind)

    def product(weight: torch.Tensor) -> Callable[[], None]:
        def run() -> None:
            torch.mm(x, weight.t(), out=y)

        return run

    return [product(weight) for weight in weights]


if __name__ == "__main__":
    main()
