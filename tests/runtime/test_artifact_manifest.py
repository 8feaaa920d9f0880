"""The manifest: what is sealed is found again, and anything altered is named."""

from __future__ import annotations

import hashlib
import json
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsruntime.artifact.digest import PieceDigests
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

PIECE = 1000
CONTENTS = {
    "plan.json": b"{}\n",
    "empty": b"",
    "weights/a-0.safetensors": bytes(range(200)) * 10,
    "weights/replicated.safetensors": b"\0" * 4001,
}


def sealed(folder: Path, files: dict[str, FileEntry]) -> None:
    manifest = seal("tiny", {"device": "cpu"}, files, {"r.yaml": "00"}, {"tscompile": "0"}, PIECE)
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))


def entries() -> dict[str, FileEntry]:
    return {name: FileEntry.of(data, PIECE) for name, data in CONTENTS.items()}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Files of no, one, two whole and five pieces."""
    for name, data in CONTENTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    sealed(tmp_path, entries())
    return tmp_path


def everything(name: str) -> bool:
    return bool(name)


def test_an_untouched_artifact_passes(artifact: Path) -> None:
    manifest = read_manifest(artifact)
    verify_files(artifact, manifest, everything)
    assert manifest.weight_files == tuple(n for n in CONTENTS if n.startswith("weights"))


def test_a_piece_has_the_digest_that_anyone_computes_of_its_bytes(artifact: Path) -> None:
    files = json.loads((artifact / "manifest.json").read_bytes())["files"]
    for name, data in CONTENTS.items():
        parts = [data[at : at + PIECE] for at in range(0, len(data), PIECE)] or [b""]
        digests = [hashlib.sha256(part).hexdigest() for part in parts]
        assert files[name] == {"bytes": len(data), "sha256": digests}


@given(
    parts=st.lists(st.binary(max_size=40), max_size=8),
    piece=st.integers(1, 50),
)
def test_digests_do_not_depend_on_how_bytes_arrive(parts: list[bytes], piece: int) -> None:
    digests, data = PieceDigests(piece), b"".join(parts)
    for part in parts:
        digests.update(memoryview(part))
    wanted = [data[at : at + piece] for at in range(0, len(data), piece)] or [b""]
    found = digests.finish()
    assert found == tuple(hashlib.sha256(part).hexdigest() for part in wanted)


@pytest.mark.parametrize("name", [name for name, data in CONTENTS.items() if data])
def test_a_flipped_byte_is_found_and_named(artifact: Path, name: str) -> None:
    data = CONTENTS[name]
    for at in {0, len(data) // 2, len(data) - 1, *range(PIECE - 1, len(data), PIECE)}:
        (artifact / name).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        first = at - at % PIECE
        where = f"between bytes {first} and {min(first + PIECE, len(data))}"
        with pytest.raises(ArtifactDamaged, match=f"{name} was altered {where}: sha256 .* sealed"):
            verify_files(artifact, read_manifest(artifact), everything)


class CountingFile:
    """A file that notes which bytes were read."""

    def __init__(self, file: FileIO, notes: list[tuple[str, int, int]]) -> None:
        self._file, self._notes = file, notes

    def __enter__(self) -> CountingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def seek(self, at: int) -> None:
        self._file.seek(at)

    def readinto(self, view: memoryview) -> int:
        start = self._file.tell()
        count = self._file.readinto(view)
        self._notes.append((str(self._file.name), start, start + count))
        return count


def test_each_byte_is_read_once(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = list[tuple[str, int, int]]()
    manifest = read_manifest(artifact)

    def counting(path: Path, mode: str, buffering: int) -> CountingFile:
        assert (mode, buffering) == ("rb", 0)
        return CountingFile(FileIO(str(path)), notes)

    monkeypatch.setattr(Path, "open", counting)
    verify_files(artifact, manifest, everything)
    for name, data in CONTENTS.items():
        spans = sorted((a, b) for file, a, b in notes if file == str(artifact / name))
        read = [at for a, b in spans for at in range(a, b)]
        assert read == list(range(len(data)))


@pytest.mark.parametrize("more", [b"\0", b"\0" * PIECE])
def test_a_longer_file_is_named_with_both_sizes(artifact: Path, more: bytes) -> None:
    name = "weights/replicated.safetensors"
    (artifact / name).write_bytes(CONTENTS[name] + more)
    match = rf"{name} has {4001 + len(more)} bytes, sealed with 4001"
    with pytest.raises(ArtifactDamaged, match=match):
        verify_files(artifact, read_manifest(artifact), everything)


@pytest.mark.parametrize(("name", "wanted"), [("weights/a-0.safetensors", 2), ("empty", 1)])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_piece_without_a_digest_is_refused(
    artifact: Path, name: str, wanted: int, change: int
) -> None:
    files = entries()
    digests = [*files[name].sha256, "00" * 32][: wanted + change]
    sealed(artifact, files | {name: FileEntry(files[name].bytes, tuple(digests))})
    match = f"{wanted + change} digests of {name}, which is {wanted} pieces"
    with pytest.raises(ArtifactDamaged, match=match):
        read_manifest(artifact)


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
    changes["piece_bytes"] = 17
    assert set(changes) | {"schema_version", "digest"} == set(original)
    for field, value in changes.items():
        (artifact / "manifest.json").write_text(json.dumps({**original, field: value}))
        with pytest.raises(ArtifactDamaged, match="was altered"):
            read_manifest(artifact)


def test_another_schema_version_is_refused_with_both(artifact: Path) -> None:
    data = json.loads((artifact / "manifest.json").read_bytes())
    (artifact / "manifest.json").write_text(json.dumps({**data, "schema_version": 99}))
    with pytest.raises(SchemaVersionMismatch, match="version 99 but this runtime reads version 2"):
        read_manifest(artifact)


def test_a_folder_without_a_manifest_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match="no artifact here"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema_version": 1}', b"\xff\xfe"])
def test_garbage_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises((ArtifactDamaged, SchemaVersionMismatch)):
        read_manifest(tmp_path)
