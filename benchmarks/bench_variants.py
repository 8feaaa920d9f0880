"""Decode graphs of several artifacts of one model on this machine's GPU, in turns in one process.

    python -m benchmarks.bench_variants ARTIFACT ARTIFACT... [--rounds 5]
        [--batch 32 64] [--context 1024 512-1536 1024+8192]

Kernels that are faster alone may be slower in a step, where each begins while the one before it
ends; and a GPU of another day differs by more than most changes do. Artifacts that are named twice
are bound twice, at other addresses, which by itself changes a step by up to 1 %. The first one is
what the others are compared with, in time and in their logits. A context `512-1536` stands for
lengths spread evenly from one to the other, and `1024+8192` for one of 8,192 after others of 1,024.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.device_batches import NONE, decodes
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
    """An artifact that is bound."""

    name: str
    executor: DeviceExecutor

    def program(self, sequences: int) -> int:
        """The number of its decode program of so many sequences."""
        return decode_programs(self.executor.plan)[sequences]

    def decode(self, lengths: NDArray[np.int32]) -> Tensor:
        """The logits of such a step, which is then what its graph replays."""
        batch = decodes(self.executor.plan, self.program(len(lengths)), lengths)
        self.executor.run(batch)
        batch = replace(batch, groups=tuple(replace(g, table_deltas=NONE) for g in batch.groups))
        return self.executor.run(batch).logits.float().clone()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="*", help="Of all decode programs if absent.")
    parser.add_argument("--context", nargs="+", default=["1024"])
    parser.add_argument("--trust-pack", nargs="*", default=[])
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    shared = SharedWeights()
    variants = [bound(path, shared, options.trust_pack) for path in options.artifacts]
    for sequences in options.batch or decode_programs(variants[0].executor.plan):
        for context in options.context:
            print(f"batch {sequences} at {context}:")
            compare(variants, lengths_of(context, sequences), options.rounds)


def lengths_of(context: str, sequences: int) -> NDArray[np.int32]:
    """Lengths of so many sequences: `1024`, `512-1536` or `1024+8192`."""
    first, mark, last = context.partition("+" if "+" in context else "-")
    if mark == "-":
        spread = np.linspace(int(first), int(last), sequences).astype(np.int32)
        return np.random.default_rng(0).permutation(spread)
    lengths = np.full(sequences, int(first), np.int32)
    lengths[-1] = int(last or first)
    return lengths


def bound(path: Path, shared: SharedWeights, trusted: Sequence[str]) -> Variant:
    """The artifact's executor."""
    plan = load_plan(path)
    code = load_code(path, read_manifest(path), plan, trusted)
    weights = shared.of(path, plan)
    return Variant(path.name, DeviceExecutor(plan, 0, weights, lambda _: LocalCommunicator(), code))


def compare(variants: Sequence[Variant], lengths: NDArray[np.int32], rounds: int) -> None:
    """Times of the variants' graphs in turns, and what their logits are apart."""
    logits = [variant.decode(lengths) for variant in variants]
    took = in_turns(variants, len(lengths), rounds)
    first = statistics.median(took[0])
    for variant, found, times in zip(variants, logits, took, strict=True):
        middle, apart = statistics.median(times), (found - logits[0]).abs().max().item()
        print(
            f"    {variant.name:24} {middle:.4f} ms ({min(times):.4f} to {max(times):.4f}),"
            f" {(middle - first) * 1e3:+7.1f} us, logits differ by up to {apart:.3g}"
        )


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


if __name__ == "__main__":
    main()
