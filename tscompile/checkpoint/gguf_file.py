"""The structure of a GGUF file: metadata and tensor table, every length checked before use.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tscompile.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointUnsupportedError,
)

VERSIONS: Final = (2, 3)
MAX_DIMS: Final = 4
MAX_DEPTH: Final = 4
"""Deepest nesting of arrays in metadata."""

Metadata: TypeAlias = "bool | int | float | str | list[Metadata]"

_SCALARS: Final[Mapping[int, str]] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
"""struct formats by GGUF's value type number."""

_BOOL: Final = 7
_STRING: Final = 8
_ARRAY: Final = 9


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor: its shape in row-major order (ggml's dims reversed), and its absolute bytes."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    begin: int
    end: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row along the last dim."""
        block, size = GGML_QUANT_SIZES[self.type]
        return self.shape[-1] // block * size


class GgufFile:
    """An open GGUF file. Raises `CheckpointDamagedError` for any contradiction in its structure."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.size = path.stat().st_size
                if self.size < 24:
                    _damaged(path, f"{self.size} bytes is too short to be a GGUF file")
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointNotFoundError(
                f"cannot read the file: {error.strerror}",
                remedy="name a .gguf file that is there",
                where=str(path),
            ) from error
        cursor = _Cursor(path, self.data)
        tensor_count, metadata_count = _read_header(cursor)
        self.metadata = _read_metadata(cursor, metadata_count)
        self.tensors = _read_tensors(cursor, tensor_count, self._alignment())

    def _alignment(self) -> int:
        value = self.metadata.get("general.alignment", 32)
        if type(value) is not int or value < 8 or value & (value - 1):
            _damaged(self.path, f"general.alignment {value} is not a power of two of 8 or more")
        return value


class _Cursor:
    """Reads forward; running past the end is reported as a file cut short."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.offset = 0

    def take(self, count: int) -> bytes:
        begin = self.offset
        if count > len(self.data) - begin:
            _damaged(
                self.path,
                f"cut short or damaged: {count} bytes are expected at byte {begin}, but the file "
                f"has {len(self.data)}",
            )
        self.offset += count
        return self.data[begin : self.offset]

    def scalar(self, form: str) -> int | float | bool:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, form: str = "<Q") -> int:
        return int(self.scalar(form))

    def peek(self) -> int:
        return self.data[self.offset] if self.offset < len(self.data) else 0

    def text(self) -> str:
        raw = self.take(self.count())
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            _damaged(self.path, f"the text before byte {self.offset} is not UTF-8")


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    magic = cursor.take(4)
    if magic != b"GGUF":
        _damaged(cursor.path, f"it begins with {magic!r}, not with b'GGUF'")
    version = cursor.count("<I")
    if version not in VERSIONS:
        raise CheckpointUnsupportedError(
            f"GGUF version {version} is not supported (versions {', '.join(map(str, VERSIONS))}, "
            "little endian, are)",
            remedy="convert the model with a current llama.cpp",
            where=str(cursor.path),
        )
    return cursor.count(), cursor.count()


def _read_metadata(cursor: _Cursor, count: int) -> Mapping[str, Metadata]:
    metadata: dict[str, Metadata] = {}
    for _ in range(count):
        key = cursor.text()
        if key in metadata:
            _damaged(cursor.path, f"the metadata key {key!r} is there twice")
        metadata[key] = _read_value(cursor, cursor.count("<I"), 0)
    return metadata


def _read_value(cursor: _Cursor, kind: int, depth: int) -> Metadata:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY and depth < MAX_DEPTH:
        return _read_array(cursor, depth)
    form = _SCALARS.get(kind)
    if form is None:
        _damaged(cursor.path, f"metadata of unknown type {kind} at byte {cursor.offset}")
    if kind == _BOOL and cursor.peek() > 1:
        _damaged(cursor.path, f"a boolean of {cursor.peek()} at byte {cursor.offset}")
    return cursor.scalar(form)


def _read_array(cursor: _Cursor, depth: int) -> list[Metadata]:
    kind, count = cursor.count("<I"), cursor.count()
    form = _SCALARS.get(kind)
    if form is not None:
        raw = cursor.take(count * struct.calcsize(form))
        return list(struct.unpack(f"<{count}{form[1]}", raw))
    read: Callable[[], Metadata] = (
        cursor.text if kind == _STRING else lambda: _read_value(cursor, kind, depth + 1)
    )
    return [read() for _ in range(count)]  # each item takes bytes, so a false count ends early


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> Mapping[str, TensorEntry]:
    rows = [_read_tensor(cursor, alignment) for _ in range(count)]
    start = -(-cursor.offset // alignment) * alignment
    tensors: dict[str, TensorEntry] = {}
    for name, shape, kind, offset in rows:
        if name in tensors:
            _damaged(cursor.path, f"the tensor {name} is there twice")
        block, size = GGML_QUANT_SIZES[kind]
        length = math.prod(shape) // block * size
        tensors[name] = TensorEntry(name, shape, kind, start + offset, start + offset + length)
    _check_coverage(cursor.path, tensors, len(cursor.data))
    return tensors


def _read_tensor(
    cursor: _Cursor, alignment: int
) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
    name, dims = cursor.text(), cursor.count("<I")
    if not 1 <= dims <= MAX_DIMS:
        _damaged(cursor.path, f"{name} has {dims} dims (1 to {MAX_DIMS} are possible)")
    shape = tuple(cursor.count() for _ in range(dims))[::-1]
    number, offset = cursor.count("<I"), cursor.count()
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        _damaged(cursor.path, f"{name} has the unknown type {number}")
    if 0 in shape or math.prod(shape) > 1 << 48:
        _damaged(cursor.path, f"{name} has the shape {list(shape)}")
    if shape[-1] % GGML_QUANT_SIZES[kind][0]:
        _damaged(
            cursor.path,
            f"{name} has rows of {shape[-1]}, no multiple of {kind.name}'s block of "
            f"{GGML_QUANT_SIZES[kind][0]}",
        )
    if offset % alignment:
        _damaged(cursor.path, f"{name} begins at {offset}, no multiple of {alignment}")
    return name, shape, kind, offset


def _check_coverage(path: Path, tensors: Mapping[str, TensorEntry], size: int) -> None:
    ordered = sorted(tensors.values(), key=lambda entry: entry.begin)
    for left, right in pairwise(ordered):
        if left.end > right.begin:
            _damaged(path, f"{left.name} and {right.name} overlap at byte {right.begin}")
    if ordered and ordered[-1].end > size:
        last = ordered[-1]
        _damaged(
            path, f"cut short: {last.name} ends at byte {last.end}, but the file has {size} bytes"
        )


def _damaged(path: Path, message: str) -> NoReturn:
    raise CheckpointDamagedError(message, remedy="fetch the file again", where=str(path))
