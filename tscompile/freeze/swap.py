"""An artifact appears whole or not at all: written beside its place, then swapped in."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tscompile.freeze.errors import DestinationTaken, DiskFull

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def staged(destination: Path) -> Generator[Path]:
    """A folder beside `destination` that replaces it when the block ends without an error.

    On any error the folder is removed and `destination` stays as it was. A full disk is reported
    as `DiskFull`; a `destination` that exists and is no artifact as `DestinationTaken`.
    """
    if destination.exists() and not (destination / "manifest.json").is_file():
        raise DestinationTaken(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{destination.name}."
    stage = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=destination.parent))
    try:
        yield stage
        stage.chmod(0o755)
        _sync(stage)
        _swap(stage, destination)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(destination.parent).free
            raise DiskFull(destination, free) from error
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Flush every file, so that the rename cannot outlive the data it names."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _swap(stage: Path, destination: Path) -> None:
    """Rename `stage` to `destination`; where that exists, exchange the two in one step."""
    if not destination.exists():
        stage.rename(destination)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(stage), os.fsencode(destination)
    if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number), str(destination))
    _swap_in_two(stage, destination)


def _swap_in_two(stage: Path, destination: Path) -> None:
    """For file systems that cannot exchange names: for a moment there is none, never half a one."""
    retired = stage.with_suffix(".retired")
    destination.rename(retired)
    stage.rename(destination)
    retired.rename(stage)
