"""The manifest: what is sealed is found again, and anything altered is named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tsruntime.artifact.errors import (
    ArtifactDamaged,
    ArtifactMissing,
    SchemaVersionMismatch,
    WeightsAbsent,
)
from tsruntime.artifact.manifest import (
    FileEntry,
    manifest_bytes,
    read_manifest,
    seal,
    verify_files,
)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    contents = {"plan.json": b"{}\n", "weights/replicated.safetensors": b"\0" * 5000}
    files: dict[str, FileEntry] = {}
    for name, data in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
        files[name] = FileEntry(len(data), hashlib.sha256(data).hexdigest())
    manifest = seal("tiny", {"device": "cpu"}, files, {"recipe.yaml": "00"}, {"tscompile": "0"})
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(manifest))
    return tmp_path


def everything(name: str) -> bool:
    return bool(name)


def test_an_untouched_artifact_passes(artifact: Path) -> None:
    manifest = read_manifest(artifact)
    verify_files(artifact, manifest, everything)
    assert manifest.weight_files == ("weights/replicated.safetensors",)


@pytest.mark.parametrize("name", ["plan.json", "weights/replicated.safetensors"])
def test_a_flipped_byte_is_found_and_named(artifact: Path, name: str) -> None:
    data = bytearray((artifact / name).read_bytes())
    data[len(data) // 2] ^= 1
    (artifact / name).write_bytes(data)
    with pytest.raises(ArtifactDamaged, match=f"{name} was altered: sha256 .* sealed as"):
        verify_files(artifact, read_manifest(artifact), everything)


def test_a_file_cut_short_is_named_with_both_sizes(artifact: Path) -> None:
    (artifact / "plan.json").write_bytes(b"{}")
    with pytest.raises(ArtifactDamaged, match=r"plan.json has 2 bytes, sealed with 3"):
        verify_files(artifact, read_manifest(artifact), everything)


def test_a_missing_file_is_named(artifact: Path) -> None:
    (artifact / "plan.json").unlink()
    with pytest.raises(ArtifactDamaged, match=r"plan.json is missing"):
        verify_files(artifact, read_manifest(artifact), everything)


def test_missing_weights_name_the_command_that_fills_them(artifact: Path) -> None:
    (artifact / "weights/replicated.safetensors").unlink()
    with pytest.raises(WeightsAbsent, match="travelled without its weights") as error:
        verify_files(artifact, read_manifest(artifact), everything)
    assert "tscompile weights" in str(error.value)


def test_every_field_of_the_manifest_is_sealed(artifact: Path) -> None:
    original = json.loads((artifact / "manifest.json").read_bytes())
    changes: dict[str, object] = {k: {} for k in ("consumed", "versions", "target", "files")}
    changes["name"] = "other"
    assert set(changes) | {"schema_version", "digest"} == set(original)
    for field, value in changes.items():
        (artifact / "manifest.json").write_text(json.dumps({**original, field: value}))
        with pytest.raises(ArtifactDamaged, match="was altered"):
            read_manifest(artifact)


def test_another_schema_version_is_refused_with_both(artifact: Path) -> None:
    data = json.loads((artifact / "manifest.json").read_bytes())
    (artifact / "manifest.json").write_text(json.dumps({**data, "schema_version": 99}))
    with pytest.raises(SchemaVersionMismatch, match="version 99 but this runtime reads version 1"):
        read_manifest(artifact)


def test_a_folder_without_a_manifest_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match="no artifact here"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema_version": 1}', b"\xff\xfe"])
def test_garbage_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises((ArtifactDamaged, SchemaVersionMismatch)):
        read_manifest(tmp_path)
