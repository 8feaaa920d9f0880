"""A safetensors file written tensor by tensor, so that memory holds one tensor at a time.

Format: https://huggingface.co/docs/safetensors (8-byte little-endian header length, JSON header,
data). The header is padded with spaces so that the data begins on a 64-byte boundary.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from typing_extensions import Buffer

from tskernels.schema import DType
from tsruntime.artifact.manifest import FileEntry

ALIGNMENT = 64
"""Bytes: a cache line, so that vector loads of mapped weights never straddle two lines."""

_NAMES = {
    DType.FLOAT64: "F64",
    DType.FLOAT32: "F32",
    DType.BFLOAT16: "BF16",
    DType.FLOAT16: "F16",
    DType.FLOAT8_E4M3: "F8_E4M3",
    DType.INT64: "I64",
    DType.INT32: "I32",
    DType.BOOL: "BOOL",
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """What the header says of one tensor."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * self.dtype.itemsize


class SafetensorsWriter:
    """Writes `entries` in the order given: `write`, or `extend` for each row, once for each."""

    def __init__(self, path: Path, entries: Sequence[TensorEntry]) -> None:
        self._pending = list(reversed(entries))
        self._digest = hashlib.sha256()
        self._size = 0
        self._rows = 0
        self._file = path.open("wb")
        self._put(_header(entries))

    def write(self, name: str, tensor: Tensor) -> None:
        """Append the data of the next tensor."""
        entry = self._pending[-1]
        found = (name, tensor.dtype, tuple(tensor.shape))
        if self._rows or found != (entry.name, entry.dtype.torch, entry.shape):
            raise ValueError(f"expected {entry} from row {self._rows} on, was given {found}")
        self._put(_data(tensor))
        self._pending.pop()

    def extend(self, name: str, row: Tensor) -> None:
        """Append the next row (along dim 0) of the next tensor, in place of all of it."""
        entry = self._pending[-1]
        found = (name, row.dtype, tuple(row.shape))
        if found != (entry.name, entry.dtype.torch, entry.shape[1:]):
            raise ValueError(f"expected row {self._rows} of {entry}, was given {found}")
        self._put(_data(row))
        self._rows += 1
        if self._rows == entry.shape[0]:
            self._pending.pop()
            self._rows = 0

    def close(self) -> FileEntry:
        """Finish the file; its size and digest."""
        if self._pending:
            raise ValueError(f"{len(self._pending)} tensors were never written")
        self._file.close()
        return FileEntry(self._size, self._digest.hexdigest())

    def abandon(self) -> None:
        """Close the file without finishing it."""
        self._file.close()

    def _put(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)


def _data(tensor: Tensor) -> memoryview:
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    return memoryview(cast("Buffer", flat.numpy()))


def _header(entries: Sequence[TensorEntry]) -> bytes:
    header: dict[str, object] = {}
    offset = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [offset, offset + entry.bytes],
        }
        offset += entry.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
