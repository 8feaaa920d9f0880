"""Weights read straight into a device's memory and checked, once, by several threads."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

import torch
from torch import Tensor

from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.artifact.manifest import Manifest, Piece, check_size, read_manifest
from tsruntime.artifact.schema import Plan
from tsruntime.artifact.weight_files import TensorEntry, header, rank_files, stored_weights
from tsruntime.artifact.weights import WeightStore

BLOCK_BYTES: Final = 8 << 20
"""Bytes that a thread reads at a time; it has memory for two such blocks."""

_MOST_THREADS: Final = 16
_REPORT_SECONDS: Final = 1.0

Report: TypeAlias = Callable[[int, int, float], None]
"""Told of bytes that are there, of all bytes, and of the seconds that it took."""


@dataclass(frozen=True, slots=True)
class _Open:
    """An open file of weights: what it must begin with, and where its tensors' bytes go.

    `targets` (uint8) follow one another in it, from `starts` on.
    """

    number: int
    name: str
    header: bytes
    starts: tuple[int, ...]
    targets: tuple[Tensor, ...]

    def places(self, start: int, block: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Where the parts of a `block` of the file, from `start` on, go: (target, part)."""
        stop = start + len(block)
        for i in range(max(0, bisect_right(self.starts, start) - 1), len(self.starts)):
            first, target = self.starts[i], self.targets[i]
            if first >= stop:
                break
            low, high = max(start, first), min(stop, first + len(target))
            if low < high:
                yield target[low - first : high - first], block[low - start : high - start]

    def begins_as_planned(self, start: int, block: Tensor) -> bool:
        """Whether the header's part in the `block` from `start` on is what the plan says."""
        wanted = self.header[start : start + len(block)]
        return bytes(block[: len(wanted)].numpy()) == wanted


_Task: TypeAlias = tuple[_Open, Piece]


class DeviceWeights:
    """The weights of `plan` as `rank` holds them, on `device`.

    The first one that is asked for has all files read and held to the manifest's digests. Weights
    that the plan gives by value, and dummy ones, are made on the device.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        rank: int,
        device: str,
        report: Report | None = None,
    ) -> None:
        self._path, self._plan, self._rank = path, plan, rank
        self._device = torch.device(device)
        self._report = report or print_progress
        self._made = WeightStore(path, plan, rank, device)
        self._read: Mapping[str, Tensor] | None = None

    def tensor(self, name: str) -> Tensor:
        """The local tensor of weight `name`.

        WeightsAbsent and ArtifactDamaged where the files are not those that the manifest seals.
        """
        if self._read is None:
            self._read = self._load() if stored_weights(self._plan) else {}
        found = self._read.get(name)
        return self._made.tensor(name) if found is None else found

    def _load(self) -> Mapping[str, Tensor]:
        tensors = {
            w.name: torch.empty(w.shape, dtype=w.dtype.torch, device=self._device)
            for w in stored_weights(self._plan)
        }
        with ExitStack() as stack:
            tasks = list(self._tasks(tensors, stack))
            read_pieces(self._path, tasks, self._device, self._report)
        return tensors

    def _tasks(self, tensors: Mapping[str, Tensor], stack: ExitStack) -> Iterator[_Task]:
        manifest = read_manifest(self._path)
        for file, weights in rank_files(self._plan, self._rank).items():
            name = f"weights/{file}"
            begin = header([TensorEntry.of(weight) for weight in weights])
            flat = tuple(tensors[weight.name].view(-1).view(torch.uint8) for weight in weights)
            self._check(name, manifest, len(begin) + sum(map(len, flat)))
            number = os.open(self._path / name, os.O_RDONLY)
            stack.callback(os.close, number)
            opened = _Open(number, name, begin, _starts(len(begin), flat), flat)
            for piece in manifest.pieces(name):
                yield opened, piece

    def _check(self, name: str, manifest: Manifest, planned: int) -> None:
        """That the file is sealed, and as long as it was sealed and as the plan says."""
        entry = manifest.files.get(name)
        if entry is None:
            raise ArtifactDamaged(self._path, f"the plan reads {name}, which is not sealed")
        check_size(self._path, name, entry)
        if entry.bytes != planned:
            raise ArtifactDamaged(
                self._path, f"{name} has {entry.bytes} bytes, the plan's tensors make {planned}"
            )


def _starts(first: int, targets: Sequence[Tensor]) -> tuple[int, ...]:
    starts: list[int] = []
    for target in targets:
        starts.append(first)
        first += len(target)
    return tuple(starts)


def print_progress(done: int, total: int, seconds: float) -> None:
    """One line on stderr."""
    rate = done / max(seconds, 1e-9) / 1e9
    line = f"weights: {done / 1e9:.2f} of {total / 1e9:.2f} GB, {rate:.2f} GB/s"
    print(line, file=sys.stderr, flush=True)


def read_pieces(path: Path, tasks: Sequence[_Task], device: torch.device, report: Report) -> None:
    """Read and check all pieces, by as many threads as help, each through memory of its own.

    `report` is called each second, and in the end.
    """
    total = sum(piece.stop - piece.start for _, piece in tasks)
    left, lock, done = iter(tasks), Lock(), [0]

    def following() -> _Task | None:
        with lock:
            return next(left, None)

    def finished(size: int) -> None:
        with lock:
            done[0] += size

    threads = max(1, min(_MOST_THREADS, os.cpu_count() or 1, len(tasks)))
    began = time.monotonic()
    with ThreadPoolExecutor(threads, "weights") as pool:
        running = {
            pool.submit(_read_some, path, device, following, finished) for _ in range(threads)
        }
        while running:
            ended, running = wait(running, _REPORT_SECONDS, FIRST_EXCEPTION)
            if any(future.exception() for future in ended):
                with lock:
                    left = iter(())
            for future in ended:
                future.result()
            if running:
                report(done[0], total, time.monotonic() - began)
    report(total, total, time.monotonic() - began)


def _read_some(
    path: Path,
    device: torch.device,
    following: Callable[[], _Task | None],
    finished: Callable[[int], None],
) -> None:
    """Read pieces until there is none left."""
    lane = _Lane(device) if device.type == "cuda" else _Buffer()
    while (task := following()) is not None:
        _read_piece(path, *task, lane, finished)
    lane.wait()


def _read_piece(
    path: Path,
    file: _Open,
    piece: Piece,
    lane: _Lane | _Buffer,
    finished: Callable[[int], None],
) -> None:
    """Read a piece block by block; while one is copied it is hashed, and the next one read."""
    digest, as_planned = hashlib.sha256(), True
    for start in range(piece.start, piece.stop, BLOCK_BYTES):
        block = lane.free()[: min(BLOCK_BYTES, piece.stop - start)]
        if os.preadv(file.number, [block.numpy().data], start) != len(block):
            raise ArtifactDamaged(path, f"{piece.name} is cut short")
        lane.copy(file.places(start, block))
        digest.update(block.numpy().data)
        as_planned &= file.begins_as_planned(start, block)
        finished(len(block))
    piece.check(path, digest.hexdigest())
    if not as_planned:
        raise ArtifactDamaged(path, f"{piece.name} holds other tensors than the plan says")


class _Buffer:
    """A thread's memory for a block, where the device is the CPU."""

    def __init__(self) -> None:
        self._block = torch.empty(BLOCK_BYTES, dtype=torch.uint8)

    def free(self) -> Tensor:
        """The memory."""
        return self._block

    def copy(self, places: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Copy parts of what was read to their targets."""
        for target, part in places:
            target.copy_(part)

    def wait(self) -> None:
        """Nothing is under way."""


class _Lane:
    """Two pinned blocks of a thread, and the stream on which they are copied to the device."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._blocks = [
            torch.empty(BLOCK_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        ]
        with torch.cuda.stream(self._stream):
            self._copied = [torch.cuda.Event(), torch.cuda.Event()]
        self._turn = 0

    def free(self) -> Tensor:
        """The block that was copied longest ago."""
        self._turn ^= 1
        self._copied[self._turn].synchronize()
        return self._blocks[self._turn]

    def copy(self, places: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Copy parts of what was read last to their targets."""
        with torch.cuda.stream(self._stream):
            for target, part in places:
                target.copy_(part, non_blocking=True)
            self._copied[self._turn].record(self._stream)

    def wait(self) -> None:
        """Until all copies are done."""
        self._stream.synchronize()
