"""The rate at which weights are read at load: `python -m benchmarks.bench_weights ARTIFACT`.

The artifact may be one without weights: files as its plan says, of the first `--gigabytes`, are
made of random bytes and removed. They are read and checked once from the disk, then from the page
cache.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tsruntime.artifact.digest import PieceDigests
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import FileEntry, manifest_bytes, seal
from tsruntime.artifact.schema import Plan, Weight
from tsruntime.artifact.weight_files import TensorEntry, header, rank_files
from tsruntime.executor.loading import DeviceWeights, print_progress

_BLOCK = os.urandom(1 << 24)


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes that were read, and seconds until all of them were on the device."""

    size: int
    seconds: float

    def text(self, how: str) -> str:
        """One line."""
        rate = self.size / self.seconds / 1e9
        return f"{how}: {self.size / 1e9:.2f} GB in {self.seconds:.2f} s, {rate:.2f} GB/s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--folder", type=Path, help="On the disk to measure.")
    options = parser.parse_args()
    plan = load_plan(options.artifact)
    chosen = replace(plan, weights=first_of(plan, options.gigabytes * 1e9), dummy_seed=None)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        files = write(folder, chosen)
        for file in files:
            forget(file)
        print(read(folder, chosen, options.device).text("from the disk"))
        print(read(folder, chosen, options.device).text("from the page cache"))


def first_of(plan: Plan, size: float) -> tuple[Weight, ...]:
    """The first stored weights of at most `size` bytes together."""
    chosen: list[Weight] = []
    for weight in plan.weights:
        if weight.constant is None:
            size -= byte_size(weight)
            if size < 0:
                break
            chosen.append(weight)
    return tuple(chosen)


def byte_size(weight: Weight) -> int:
    """Bytes of one rank's part."""
    return math.prod(weight.shape) * weight.dtype.itemsize


def write(folder: Path, plan: Plan) -> list[Path]:
    """The weight files of rank 0, with random contents, and a manifest."""
    (folder / "weights").mkdir()
    files = {f"weights/{name}": weights for name, weights in rank_files(plan, 0).items()}
    entries = {name: _written(folder / name, weights) for name, weights in files.items()}
    (folder / "manifest.json").write_bytes(manifest_bytes(seal("bench", {}, entries, {}, {})))
    return [folder / name for name in files]


def _written(path: Path, weights: Sequence[Weight]) -> FileEntry:
    entries = [TensorEntry.of(weight) for weight in weights]
    digests, size, left = PieceDigests(), 0, sum(entry.bytes for entry in entries)
    with path.open("wb") as file:
        for block in _blocks(header(entries), left):
            digests.update(block)
            size += file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(size, digests.finish())


def _blocks(first: bytes, left: int) -> Iterator[bytes]:
    yield first
    for at in range(0, left, len(_BLOCK)):
        yield _BLOCK[: left - at]


def forget(path: Path) -> None:
    """Have the file's contents leave the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(folder: Path, plan: Plan, device: str) -> Reading:
    """All weights, as a rank reads them when it starts."""
    weights = DeviceWeights(folder, plan, 0, device, print_progress)
    if device.startswith("cuda"):
        torch.cuda.init()
    begin = time.perf_counter()
    weights.tensor(plan.weights[0].name)
    return Reading(sum(map(byte_size, plan.weights)), time.perf_counter() - begin)


if __name__ == "__main__":
    main()
