"""One safetensors file: its header checked against its length, its tensors mapped.

The format: 8 bytes of header length (little endian), a JSON header from name to dtype, shape and
[begin, end) in the data that follows, which the tensors cover without gap or overlap.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn, cast

import torch
from torch import Tensor

from tscompile.checkpoint.base import TensorInfo
from tscompile.errors import CheckpointDamagedError, CheckpointNotFoundError

MAX_HEADER_BYTES: Final = 100_000_000
"""The limit of the safetensors library itself."""

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of the file; offsets are absolute."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def info(self) -> TensorInfo:
        """Its type."""
        return TensorInfo(str(self.dtype).removeprefix("torch."), self.shape)


class SafetensorsFile:
    """An open file. Raises `CheckpointDamagedError` for any contradiction in its structure."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._size = path.stat().st_size
            header = _read_header(path, self._size)
        except OSError as error:
            raise CheckpointNotFoundError(
                f"cannot read {path.name}: {error.strerror}",
                remedy="fetch the checkpoint again",
                where=str(path),
            ) from error
        self.entries = _parse_header(path, header, self._size)
        self._map: mmap.mmap | None = None

    def read(self, name: str) -> Tensor:
        """The tensor `name`, sharing the mapped file; writing to it changes memory only."""
        entry = self.entries[name]
        if entry.begin == entry.end:
            return torch.empty(entry.shape, dtype=entry.dtype)
        count = math.prod(entry.shape)
        flat = torch.frombuffer(self._mapped(), dtype=entry.dtype, count=count, offset=entry.begin)
        return flat.reshape(entry.shape)

    def _mapped(self) -> mmap.mmap:
        if self._map is None:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            if len(self._map) != self._size:
                _damaged(self.path, f"changed from {self._size} to {len(self._map)} bytes")
        return self._map


def _read_header(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            _damaged(path, f"{size} bytes is too short to hold a header")
        length = int.from_bytes(prefix, "little")
        if length > min(size - 8, MAX_HEADER_BYTES):
            _damaged(
                path,
                f"the header should have {length} bytes, but the file has {size - 8} after its "
                f"length (and at most {MAX_HEADER_BYTES} are allowed)",
            )
        return file.read(length)


def _parse_header(path: Path, header: bytes, size: int) -> Mapping[str, Entry]:
    try:
        table: object = json.loads(header.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        _damaged(path, f"the header is not JSON: {error}")
    if not isinstance(table, dict):
        _damaged(path, "the header is not a JSON object")
    start = 8 + len(header)
    entries = {
        name: _parse_entry(path, name, fields, start)
        for name, fields in cast("dict[str, object]", table).items()
        if name != "__metadata__"
    }
    _check_coverage(path, entries, start, size)
    return entries


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name is there twice")
    return table


def _parse_entry(path: Path, name: str, fields: object, start: int) -> Entry:
    table = _object(fields)
    dtype = DTYPES.get(str(table.get("dtype")))
    shape, offsets = _counts(table.get("shape")), _counts(table.get("data_offsets"))
    if dtype is None or shape is None or offsets is None or len(offsets) != 2:
        shown = json.dumps(fields)[:100]
        _damaged(path, f"the header's entry of {name} is not understood: {shown}")
    begin, end = offsets
    expected = math.prod(shape) * dtype.itemsize
    if end - begin != expected:
        _damaged(
            path,
            f"{name} has shape {list(shape)} and dtype {table['dtype']}, so {expected} bytes, but "
            f"its offsets {list(offsets)} span {end - begin}",
        )
    return Entry(name, dtype, shape, start + begin, start + end)


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _counts(value: object) -> tuple[int, ...] | None:
    """A list of whole numbers from 0 up, else None."""
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    if not all(type(item) is int and 0 <= item < 1 << 62 for item in items):
        return None
    return tuple(cast("list[int]", items))


def _check_coverage(path: Path, entries: Mapping[str, Entry], start: int, size: int) -> None:
    ordered = sorted(entries.values(), key=lambda entry: (entry.begin, entry.end))
    end = ordered[-1].end if ordered else start
    if end > size:
        _damaged(
            path,
            f"cut short: {ordered[-1].name} ends at byte {end}, but the file has {size} bytes",
        )
    for left, right in pairwise(ordered):
        if left.end != right.begin:
            kind = "overlap" if left.end > right.begin else "leave a gap"
            _damaged(
                path,
                f"{left.name} and {right.name} {kind}: one ends at byte {left.end}, the other "
                f"begins at {right.begin}",
            )
    if ordered and ordered[0].begin != start:
        _damaged(path, f"{ordered[0].name} begins at byte {ordered[0].begin}, not at {start}")
    if end < size:
        _damaged(path, f"the tensors end at byte {end}, but the file has {size} bytes")


def _damaged(path: Path, message: str) -> NoReturn:
    raise CheckpointDamagedError(message, remedy="fetch the file again", where=str(path))
