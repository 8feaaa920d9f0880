"""Artifacts whose manifest is made to say what their files are now."""

from __future__ import annotations

from pathlib import Path

from tsruntime.artifact.manifest import FileEntry, manifest_bytes, read_manifest, seal


def reseal(artifact: Path, piece_bytes: int) -> Path:
    """Have the manifest say of the files what they are now, in pieces of that size."""
    old = read_manifest(artifact)
    files = {name: FileEntry.of((artifact / name).read_bytes(), piece_bytes) for name in old.files}
    new = seal(old.name, old.target, files, old.consumed, old.versions, piece_bytes)
    (artifact / "manifest.json").write_bytes(manifest_bytes(new))
    return artifact
