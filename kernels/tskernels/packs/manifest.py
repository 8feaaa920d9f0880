"""A kernel pack on disk: a folder with a shared object, and `pack.json`, which says what it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError

from tskernels.packs.errors import PackDamaged

MANIFEST: Final = "pack.json"
SCHEMA_VERSION: Final = 1
ABI: Final = 1
"""Number of the functions' C signature: `TS_PACK_ABI` of kernel_pack.h."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How many addresses, integers and reals a function takes."""

    addresses: int
    integers: int
    reals: int


@dataclass(frozen=True, slots=True)
class Pack:
    """What a pack holds. `digest` is its library's SHA-256, by which it is consumed and trusted.

    `arch` is as capabilities name it; `functions` are the library's, by name. `built_with` are the
    versions that the library came from.
    """

    name: str
    version: str
    arch: str
    digest: str
    functions: Mapping[str, Signature]
    built_with: Mapping[str, str]
    abi: int = ABI
    schema_version: int = SCHEMA_VERSION

    @property
    def library(self) -> str:
        """Name of the shared object's file."""
        return f"{self.name}.so"


_ADAPTER = TypeAdapter(Pack)


def digest_of(library: bytes) -> str:
    """The digest that names a library."""
    return hashlib.sha256(library).hexdigest()


def write_pack(folder: Path, pack: Pack, library: bytes) -> None:
    """Make `folder` hold the pack."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / pack.library).write_bytes(library)
    text = json.dumps(asdict(pack), indent=1, sort_keys=True)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_pack(folder: Path) -> tuple[Pack, bytes]:
    """The pack in `folder` and its library, which no code of is run.

    PackDamaged where one is not there, does not fit the schema, or has another digest.
    """
    try:
        data: object = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise _damaged(folder, f"no kernel pack here: {MANIFEST} does not exist") from None
    except ValueError as error:
        raise _damaged(folder, f"{MANIFEST} is not JSON: {error}") from None
    fields = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    found = fields.get("schema_version")
    if found != SCHEMA_VERSION:
        what = f"{MANIFEST} has schema version {found}, this version reads {SCHEMA_VERSION}"
        raise _damaged(folder, what)
    try:
        pack = _ADAPTER.validate_python(data)
    except ValidationError as error:
        raise _damaged(folder, f"{MANIFEST} does not fit its schema: {error}") from None
    return pack, _library(folder, pack)


def _library(folder: Path, pack: Pack) -> bytes:
    try:
        library = (folder / pack.library).read_bytes()
    except FileNotFoundError:
        raise _damaged(folder, f"{pack.library} is missing") from None
    if (found := digest_of(library)) != pack.digest:
        raise _damaged(
            folder, f"{pack.library} was altered: sha256 {found}, {MANIFEST} says {pack.digest}"
        )
    return library


def _damaged(folder: Path, what: str) -> PackDamaged:
    return PackDamaged(
        what, remedy="build the pack again with `tscompile kernels pack`", where=str(folder)
    )
