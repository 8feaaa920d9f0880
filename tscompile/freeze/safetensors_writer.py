"""A file of weights written tensor by tensor, so that memory holds one tensor at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from typing_extensions import Buffer

from tsruntime.artifact.digest import PIECE_BYTES, PieceDigests
from tsruntime.artifact.manifest import FileEntry
from tsruntime.artifact.weight_files import TensorEntry, header


class SafetensorsWriter:
    """Writes `entries` in the order given: `write`, or `extend` for each row, once for each."""

    def __init__(
        self, path: Path, entries: Sequence[TensorEntry], piece_bytes: int = PIECE_BYTES
    ) -> None:
        self._pending = list(reversed(entries))
        self._digests = PieceDigests(piece_bytes)
        self._size = 0
        self._rows = 0
        self._file = path.open("wb")
        self._put(header(entries))

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
        """Finish the file; its size and digests."""
        if self._pending:
            raise ValueError(f"{len(self._pending)} tensors were never written")
        self._file.close()
        return FileEntry(self._size, self._digests.finish())

    def abandon(self) -> None:
        """Close the file without finishing it."""
        self._file.close()

    def _put(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digests.update(data)
        self._size += len(data)


def _data(tensor: Tensor) -> memoryview:
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    return memoryview(cast("Buffer", flat.numpy()))
