"""Digests of files, piece by piece, and canonical JSON, on which the artifact's identity rests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 64 << 20
"""Bytes of a file that one digest covers: a large file's pieces are hashed side by side."""

_BLOCK_BYTES: Final = 4 << 20


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_range(path: Path, start: int, stop: int) -> str:
    """Hexadecimal SHA-256 of a file's bytes from `start` to `stop` (the GIL is free meanwhile)."""
    digest = hashlib.sha256()
    view = memoryview(bytearray(min(_BLOCK_BYTES, stop - start)))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while start < stop and (count := file.readinto(view[: stop - start])):
            digest.update(view[:count])
            start += count
    return digest.hexdigest()


def piece_starts(size: int, piece_bytes: int) -> range:
    """Where a file's pieces begin; an empty file is one piece of no bytes."""
    return range(0, max(size, 1), piece_bytes)


class PieceDigests:
    """Hexadecimal SHA-256 of each piece of bytes that are given one after another."""

    def __init__(self, piece_bytes: int = PIECE_BYTES) -> None:
        self._piece_bytes = piece_bytes
        self._done: list[str] = []
        self._piece, self._filled = hashlib.sha256(), 0

    def update(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        view = memoryview(data)
        while len(view):
            part = view[: self._piece_bytes - self._filled]
            self._piece.update(part)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == self._piece_bytes:
                self._end()

    def finish(self) -> tuple[str, ...]:
        """The digests, once all bytes were given."""
        if self._filled or not self._done:
            self._end()
        return tuple(self._done)

    def _end(self) -> None:
        self._done.append(self._piece.hexdigest())
        self._piece, self._filled = hashlib.sha256(), 0


def canonical_json(data: object) -> bytes:
    """One spelling for each value: sorted keys, no spaces, UTF-8, no NaN, a newline at the end."""
    text = json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode() + b"\n"
