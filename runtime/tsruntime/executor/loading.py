"""Weights read straight into a device's memory, by several threads, with progress."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from tskernels.schema import DType
from tsruntime.artifact.errors import ArtifactDamaged, WeightsAbsent
from tsruntime.artifact.schema import Plan, Weight, weight_file
from tsruntime.artifact.weights import WeightStore

PIECE_BYTES: Final = 16 << 20
"""Bytes that a thread reads at a time; it has memory for two such pieces."""

_MOST_THREADS: Final = 8
_REPORT_SECONDS: Final = 1.0
_DTYPES: Final[Mapping[str, str]] = {
    "F64": "float64",
    "F32": "float32",
    "BF16": "bfloat16",
    "F16": "float16",
    "F8_E4M3": "float8_e4m3fn",
    "I64": "int64",
    "I32": "int32",
    "BOOL": "bool",
}
"""The format's names of `DType`s."""

Report: TypeAlias = Callable[[int, int, float], None]
"""Told of bytes that are there, of all bytes, and of the seconds that it took."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of an open file from `offset` on, and where they go: all of `target` (uint8)."""

    file: int
    name: str
    offset: int
    target: Tensor


class DeviceWeights:
    """The weights of `plan` as `rank` holds them, on `device`.

    The first one that is asked for has all files read. Weights that the plan gives by value, and
    dummy ones, are made on the device.
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

        WeightsAbsent and ArtifactDamaged where the files do not hold what the plan says.
        """
        if self._read is None:
            stored = [w for w in self._plan.weights if w.constant is None]
            self._read = {} if self._plan.dummy_seed is not None else self._load(stored)
        found = self._read.get(name)
        return self._made.tensor(name) if found is None else found

    def _load(self, weights: Sequence[Weight]) -> Mapping[str, Tensor]:
        tensors = {
            w.name: torch.empty(w.shape, dtype=w.dtype.torch, device=self._device) for w in weights
        }
        with ExitStack() as stack:
            pieces = list(self._pieces(weights, tensors, stack))
            read_pieces(self._path, pieces, self._device, self._report)
        return tensors

    def _pieces(
        self, weights: Sequence[Weight], tensors: Mapping[str, Tensor], stack: ExitStack
    ) -> Iterator[_Piece]:
        open_: dict[str, tuple[int, int, Mapping[str, Any]]] = {}
        for weight in weights:
            file = weight_file(self._plan.mesh, weight, self._rank)
            if file not in open_:
                open_[file] = self._open(file, stack)
            number, start, header = open_[file]
            first = start + self._offset(file, header, weight)
            flat = tensors[weight.name].view(-1).view(torch.uint8)
            for at in range(0, len(flat), PIECE_BYTES):
                yield _Piece(number, file, first + at, flat[at : at + PIECE_BYTES])

    def _open(self, name: str, stack: ExitStack) -> tuple[int, int, Mapping[str, Any]]:
        """The file's number, where its data begin, and its header."""
        path = self._path / "weights" / name
        if not path.is_file():
            raise WeightsAbsent(self._path, name)
        number = os.open(path, os.O_RDONLY)
        stack.callback(os.close, number)
        size = int.from_bytes(os.pread(number, 8, 0), "little")
        try:
            header: Mapping[str, Any] = json.loads(os.pread(number, size, 8))
        except ValueError as error:
            raise ArtifactDamaged(self._path, f"weights/{name}: {error}") from None
        return number, 8 + size, header

    def _offset(self, file: str, header: Mapping[str, Any], weight: Weight) -> int:
        entry = header.get(weight.name)
        if entry is None:
            raise ArtifactDamaged(self._path, f"weights/{file} lacks {weight.name}")
        found = (tuple(entry["shape"]), _DTYPES.get(entry["dtype"]))
        wanted = (weight.shape, str(DType(weight.dtype)))
        if found != wanted:
            raise ArtifactDamaged(
                self._path, f"weights/{file}: {weight.name} is {found}, the plan says {wanted}"
            )
        return int(entry["data_offsets"][0])


def print_progress(done: int, total: int, seconds: float) -> None:
    """One line on stderr."""
    rate = done / max(seconds, 1e-9) / 1e9
    line = f"weights: {done / 1e9:.2f} of {total / 1e9:.2f} GB, {rate:.2f} GB/s"
    print(line, file=sys.stderr, flush=True)


def read_pieces(path: Path, pieces: Sequence[_Piece], device: torch.device, report: Report) -> None:
    """Read all pieces, by as many threads as help, each through memory of its own.

    `report` is called each second, and in the end.
    """
    total = sum(len(piece.target) for piece in pieces)
    left, lock, done = iter(pieces), Lock(), [0]

    def following() -> _Piece | None:
        with lock:
            return next(left, None)

    def finished(piece: _Piece) -> None:
        with lock:
            done[0] += len(piece.target)

    threads = max(1, min(_MOST_THREADS, os.cpu_count() or 1, len(pieces)))
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
    following: Callable[[], _Piece | None],
    finished: Callable[[_Piece], None],
) -> None:
    """Read pieces until there is none left; while one is copied the next one is read."""
    lane = _Lane(device) if device.type == "cuda" else None
    buffer = torch.empty(PIECE_BYTES, dtype=torch.uint8)
    while (piece := following()) is not None:
        place = buffer if lane is None else lane.free()
        part = place[: len(piece.target)]
        if os.preadv(piece.file, [part.numpy().data], piece.offset) != len(part):
            raise ArtifactDamaged(path, f"weights/{piece.name} is cut short")
        if lane is None:
            piece.target.copy_(part)
        else:
            lane.copy(piece.target, part)
        finished(piece)
    if lane is not None:
        lane.wait()


class _Lane:
    """Two pinned buffers of a thread, and the stream on which they are copied to the device."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._buffers = [
            torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        ]
        with torch.cuda.stream(self._stream):
            self._copied = [torch.cuda.Event(), torch.cuda.Event()]
        self._turn = 0

    def free(self) -> Tensor:
        """The buffer that was copied longest ago."""
        self._turn ^= 1
        self._copied[self._turn].synchronize()
        return self._buffers[self._turn]

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copy what was read into the buffer last."""
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            self._copied[self._turn].record(self._stream)

    def wait(self) -> None:
        """Until all copies are done."""
        self._stream.synchronize()
