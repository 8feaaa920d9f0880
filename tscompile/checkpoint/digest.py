"""SHA-256 of checkpoint files, and their comparison with what is expected."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tscompile.errors import CheckpointNotFoundError, DigestMismatchError


def file_sha256(path: Path) -> str:
    """Lower-case hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_digests(paths: Mapping[str, Path], expected: Mapping[str, str], where: str) -> None:
    """Compare files with expected digests by name; `where` says who expects them."""
    for name, digest in sorted(expected.items()):
        path = paths.get(name)
        if path is None:
            raise CheckpointNotFoundError(
                f"a SHA-256 is given for {name!r}, which is no file of the checkpoint "
                f"({', '.join(sorted(paths))})",
                remedy="correct the file name",
                where=where,
            )
        found = file_sha256(path)
        if found != digest:
            raise DigestMismatchError(
                f"SHA-256 of {path.name} is {found}, expected {digest}",
                remedy="the file is damaged or another version: fetch it again",
                where=where,
            )
