"""Decode graphs of several artifacts of one model on this machine's GPU, in turns in one process.

    python -m benchmarks.bench_variants ARTIFACT ARTIFACT... [--rounds 5] [--context 1024]

Kernels that are faster alone may be slower in a step, where each begins while the one before it
ends; and a GPU of another day differs by more than most changes do. Artifacts that are named twice
are bound twice, at other addresses, which by itself changes a step by up to 1 %. The first one is
what the others are compared with, in time and in their logits.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.bench_device import NONE, decode_batch
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.schema import Phase, Plan
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.device import DeviceExecutor
from tsruntime.executor.loading import DeviceWeights

REPLAYS = 25
"""Replays of a graph in a round."""


class SharedWeights:
    """Weights that executors of one model share: each is made once for its name and shape."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, tuple[int, ...], str], Tensor] = {}

    def of(self, path: Path, plan: Plan) -> Weights:
        """Those that the artifact at `path` asks for."""
        return Weights(DeviceWeights(path, plan, 0, "cuda:0"), plan, self._made)


@dataclass(frozen=True, slots=True)
class Weights:
    """One artifact's weights, out of what others have made already."""

    source: DeviceWeights
    plan: Plan
    made: dict[tuple[str, tuple[int, ...], str], Tensor]

    def tensor(self, name: str) -> Tensor:
        """The weight `name`."""
        (weight,) = [w for w in self.plan.weights if w.name == name]
        key = (name, weight.shape, weight.dtype)
        if key not in self.made:
            self.made[key] = self.source.tensor(name)
        return self.made[key]


@dataclass(frozen=True, slots=True)
class Variant:
    """An artifact that is bound, and the logits of its decode programs by their sequences."""

    name: str
    executor: DeviceExecutor
    logits: Mapping[int, Tensor]

    def program(self, sequences: int) -> int:
        """The number of its decode program of so many sequences."""
        return decode_programs(self.executor.plan)[sequences]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--trust-pack", nargs="*", default=[])
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    shared = SharedWeights()
    variants = [
        bound(path, shared, options.context, options.trust_pack) for path in options.artifacts
    ]
    for sequences in sorted(variants[0].logits):
        compared = [v for v in variants if sequences in v.logits]
        took = in_turns(compared, sequences, options.rounds)
        for variant, times in zip(compared, took, strict=True):
            show(sequences, variant, times, compared[0], took[0])


def bound(path: Path, shared: SharedWeights, context: int, trusted: Sequence[str]) -> Variant:
    """The artifact's executor, once it has run each decode program."""
    plan = load_plan(path)
    code = load_code(path, read_manifest(path), plan, trusted)
    executor = DeviceExecutor(plan, 0, shared.of(path, plan), lambda _: LocalCommunicator(), code)
    logits: dict[int, Tensor] = {}
    for sequences, index in decode_programs(plan).items():
        batch = decode_batch(plan, index, context)
        executor.run(batch)
        batch = replace(batch, groups=tuple(replace(g, table_deltas=NONE) for g in batch.groups))
        logits[sequences] = executor.run(batch).logits.float().clone()
    return Variant(path.name, executor, logits)


def decode_programs(plan: Plan) -> Mapping[int, int]:
    """Numbers of the decode programs by their sequences."""
    programs = enumerate(plan.programs)
    return {p.sequences: i for i, p in programs if p.phase is Phase.DECODE}


def in_turns(variants: Sequence[Variant], sequences: int, rounds: int) -> list[list[float]]:
    """Milliseconds of each variant's graph, a figure a round."""
    took: list[list[float]] = [[] for _ in variants]
    for _ in range(rounds):
        for variant, times in zip(variants, took, strict=True):
            times.append(variant.executor.replay(variant.program(sequences), REPLAYS))
    return took


def show(
    sequences: int,
    variant: Variant,
    times: Sequence[float],
    first: Variant,
    first_times: Sequence[float],
) -> None:
    middle, apart = statistics.median(times), variant.logits[sequences] - first.logits[sequences]
    print(
        f"batch {sequences:3} {variant.name:24} {middle:.4f} ms ({min(times):.4f} to"
        f" {max(times):.4f}), {(middle - statistics.median(first_times)) * 1e3:+7.1f} us,"
        f" logits differ by up to {apart.abs().max().item():.3g}"
    )


if __name__ == "__main__":
    main()
