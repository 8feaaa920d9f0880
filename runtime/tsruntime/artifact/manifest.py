"""The manifest: the digest of every file, the target, and what the build consumed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self, cast

from pydantic import TypeAdapter, ValidationError

from tsruntime.artifact.digest import (
    PIECE_BYTES,
    PieceDigests,
    canonical_json,
    piece_starts,
    sha256_bytes,
    sha256_range,
)
from tsruntime.artifact.errors import (
    ArtifactDamaged,
    ArtifactMissing,
    SchemaVersionMismatch,
    WeightsAbsent,
)

MANIFEST_VERSION: Final = 2
"""Version of the whole artifact's layout; the plan's own schema moves with it."""

_MOST_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size in bytes of one file, and the SHA-256 of each of its pieces.

    A file of at most one piece has the digest that anyone computes of it.
    """

    bytes: int
    sha256: tuple[str, ...]

    @classmethod
    def of(cls, data: bytes, piece_bytes: int = PIECE_BYTES) -> Self:
        """The entry of a file that holds `data`."""
        digests = PieceDigests(piece_bytes)
        digests.update(data)
        return cls(len(data), digests.finish())


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `stop` of the artifact's file `name`, and their SHA-256."""

    name: str
    start: int
    stop: int
    sha256: str

    def check(self, path: Path, found: str) -> None:
        """ArtifactDamaged unless the piece was `found` to have its digest."""
        if found != self.sha256:
            raise ArtifactDamaged(
                path,
                f"{self.name} was altered between bytes {self.start} and {self.stop}:"
                f" sha256 {found}, sealed as {self.sha256}",
            )


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artifact consists of. `digest` is the SHA-256 of the canonical rest.

    Pieces of files are `piece_bytes` long, the last one of a file as long as what is left.
    """

    schema_version: int
    piece_bytes: int
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

    def pieces(self, name: str) -> Iterator[Piece]:
        """The pieces of the file `name`, in order."""
        entry = self.files[name]
        starts = piece_starts(entry.bytes, self.piece_bytes)
        for start, sha256 in zip(starts, entry.sha256, strict=True):
            yield Piece(name, start, min(start + self.piece_bytes, entry.bytes), sha256)


_ADAPTER = TypeAdapter(Manifest)


def seal(
    name: str,
    target: Mapping[str, str],
    files: Mapping[str, FileEntry],
    consumed: Mapping[str, str],
    versions: Mapping[str, str],
    piece_bytes: int = PIECE_BYTES,
) -> Manifest:
    """A manifest with its digest."""
    body = Manifest(
        MANIFEST_VERSION, piece_bytes, name, target, files, consumed, versions, digest=""
    )
    return replace(body, digest=_body_digest(body))


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
    _check_pieces(path, manifest)
    return manifest


def verify_files(path: Path, manifest: Manifest, wanted: Callable[[str], bool]) -> None:
    """Check presence, size and digests of every file that `wanted` selects, by several threads."""
    names = [name for name in manifest.files if wanted(name)]
    for name in names:
        check_size(path, name, manifest.files[name])
    pieces = [piece for name in names for piece in manifest.pieces(name)]

    def digest_of(piece: Piece) -> str:
        return sha256_range(path / piece.name, piece.start, piece.stop)

    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(digest_of, pieces))
    for piece, digest in zip(pieces, digests, strict=True):
        piece.check(path, digest)


def check_size(path: Path, name: str, entry: FileEntry) -> None:
    """WeightsAbsent or ArtifactDamaged unless the file is there and as long as was sealed."""
    file = path / name
    if not file.is_file():
        if name.startswith("weights/"):
            raise WeightsAbsent(path, name.removeprefix("weights/"))
        raise ArtifactDamaged(path, f"{name} is missing")
    if (size := file.stat().st_size) != entry.bytes:
        raise ArtifactDamaged(path, f"{name} has {size} bytes, sealed with {entry.bytes}")


def _check_pieces(path: Path, manifest: Manifest) -> None:
    size = manifest.piece_bytes
    if size < 1:
        raise ArtifactDamaged(path, f"manifest.json: pieces of files have {size} bytes")
    for name, entry in manifest.files.items():
        found, wanted = len(entry.sha256), len(piece_starts(entry.bytes, size))
        if found != wanted:
            raise ArtifactDamaged(
                path, f"manifest.json has {found} digests of {name}, which is {wanted} pieces"
            )


def _body_digest(manifest: Manifest) -> str:
    body = {key: value for key, value in asdict(manifest).items() if key != "digest"}
    return sha256_bytes(canonical_json(body))
