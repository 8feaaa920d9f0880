"""The manifest: the digest of every file, the target, and what the build consumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from tsruntime.artifact.digest import canonical_json, sha256_bytes, sha256_file
from tsruntime.artifact.errors import (
    ArtifactDamaged,
    ArtifactMissing,
    SchemaVersionMismatch,
    WeightsAbsent,
)

MANIFEST_VERSION = 1
"""Version of the whole artifact's layout; the plan's own schema moves with it."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size in bytes and SHA-256 of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artifact consists of. `digest` is the SHA-256 of the canonical rest."""

    schema_version: int
    name: str
    target: Mapping[str, str]
    files: Mapping[str, FileEntry]
    consumed: Mapping[str, str]
    versions: Mapping[str, str]
    digest: str

    @property
    def weight_files(self) -> tuple[str, ...]:
        """Paths of the weight files, relative to the artifact."""
        return tuple(name for name in self.files if name.startswith("weights/"))


_ADAPTER = TypeAdapter(Manifest)


def seal(
    name: str,
    target: Mapping[str, str],
    files: Mapping[str, FileEntry],
    consumed: Mapping[str, str],
    versions: Mapping[str, str],
) -> Manifest:
    """A manifest with its digest."""
    body = Manifest(MANIFEST_VERSION, name, target, files, consumed, versions, digest="")
    return Manifest(
        MANIFEST_VERSION, name, target, files, consumed, versions, digest=_body_digest(body)
    )


def manifest_bytes(manifest: Manifest) -> bytes:
    """The bytes of `manifest.json`."""
    return canonical_json(asdict(manifest))


def read_manifest(path: Path) -> Manifest:
    """Read and check `manifest.json` of the artifact at `path`, trusting no file that it names."""
    file = path / "manifest.json"
    if not file.is_file():
        raise ArtifactMissing(path)
    try:
        data: object = json.loads(file.read_bytes())
    except ValueError as error:
        raise ArtifactDamaged(path, f"manifest.json is not JSON: {error}") from None
    fields = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    version = fields.get("schema_version")
    if version != MANIFEST_VERSION:
        raise SchemaVersionMismatch(path, version, MANIFEST_VERSION)
    try:
        manifest = _ADAPTER.validate_python(data)
    except ValidationError as error:
        raise ArtifactDamaged(path, f"manifest.json does not fit its schema: {error}") from None
    if manifest.digest != (found := _body_digest(manifest)):
        raise ArtifactDamaged(
            path, f"manifest.json was altered: digest {found}, sealed as {manifest.digest}"
        )
    return manifest


def verify_files(path: Path, manifest: Manifest, wanted: Callable[[str], bool]) -> None:
    """Check presence, size and digest of every file that `wanted` selects, several at a time."""
    names = [name for name in manifest.files if wanted(name)]
    for name in names:
        _check_size(path, name, manifest.files[name])
    with ThreadPoolExecutor(max_workers=4) as pool:
        digests = list(pool.map(sha256_file, [path / name for name in names]))
    for name, digest in zip(names, digests, strict=True):
        if digest != (expected := manifest.files[name].sha256):
            raise ArtifactDamaged(
                path, f"{name} was altered: sha256 {digest}, sealed as {expected}"
            )


def _check_size(path: Path, name: str, entry: FileEntry) -> None:
    file = path / name
    if not file.is_file():
        if name.startswith("weights/"):
            raise WeightsAbsent(path, name.removeprefix("weights/"))
        raise ArtifactDamaged(path, f"{name} is missing")
    if (size := file.stat().st_size) != entry.bytes:
        raise ArtifactDamaged(path, f"{name} has {size} bytes, sealed with {entry.bytes}")


def _body_digest(manifest: Manifest) -> str:
    body = {key: value for key, value in asdict(manifest).items() if key != "digest"}
    return sha256_bytes(canonical_json(body))
