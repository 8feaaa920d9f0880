"""Digests of files and canonical JSON, on which the artifact's identity rests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

_CHUNK = 1 << 22


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces of 4 MiB (the GIL is free meanwhile)."""
    digest = hashlib.sha256()
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def canonical_json(data: object) -> bytes:
    """One spelling for each value: sorted keys, no spaces, UTF-8, no NaN, a newline at the end."""
    text = json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode() + b"\n"
