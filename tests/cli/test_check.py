"""`tscompile check` and `tscompile weights`: an artifact is whole, or one line says why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from checkpoints import TinyHf
from deployments import Run, build, manifest, recipe


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_hf: TinyHf) -> Path:
    return build(tmp_path_factory.mktemp("built"), recipe(tiny_hf("qwen2"), world=3))


@pytest.fixture
def artifact(built: Path, tmp_path: Path) -> Path:
    """A copy elsewhere: an artifact may move."""
    return Path(shutil.copytree(built, tmp_path / "moved"))


def test_a_copied_artifact_is_intact(tscompile: Run, artifact: Path) -> None:
    done = tscompile("check", artifact)
    assert (done.code, done.err) == (0, "")
    assert "files intact" in done.out


def test_the_artifact_consists_of_what_the_design_lists(artifact: Path) -> None:
    names = set(manifest(artifact)["files"])
    assert names >= {
        "recipe.yaml",
        "plan.json",
        "plan.txt",
        "certificate.json",
        "kernels/pins.json",
        "weights/replicated.safetensors",
        "weights/a-0.safetensors",
        "weights/a-1.safetensors",
        "weights/a-2.safetensors",
        "tokenizer/tokenizer.json",
        "tokenizer/chat_template.jinja",
        "tokenizer/generation.json",
    }
    found = {str(p.relative_to(artifact)) for p in artifact.rglob("*") if p.is_file()}
    assert found == names | {"manifest.json"}


def test_a_flipped_byte_anywhere_is_found(tscompile: Run, artifact: Path) -> None:
    for name in [*manifest(artifact)["files"], "manifest.json"]:
        file = artifact / name
        original = file.read_bytes()
        data = bytearray(original)
        data[len(data) * 2 // 3] ^= 0x04
        file.write_bytes(data)
        done = tscompile("check", artifact)
        assert done.code == 1, name
        assert name in done.err
        file.write_bytes(original)
    assert tscompile("check", artifact).code == 0


def test_a_missing_file_is_found(tscompile: Run, artifact: Path) -> None:
    for name in manifest(artifact)["files"]:
        kept = (artifact / name).rename(artifact / "kept")
        done = tscompile("check", artifact)
        assert done.code == 1, name
        assert Path(name).name in done.err
        kept.rename(artifact / name)


def test_another_schema_version_is_refused(tscompile: Run, artifact: Path) -> None:
    file = artifact / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"schema_version": 7}))
    done = tscompile("check", artifact)
    assert done.code == 1
    assert "schema version 7 but this runtime reads version 2" in done.err


def test_no_artifact_at_all(tscompile: Run, tmp_path: Path) -> None:
    done = tscompile("check", tmp_path)
    assert done.code == 1
    assert "no artifact here" in done.err


def test_weights_fill_an_artifact_that_travelled_without(
    tscompile: Run, artifact: Path, built: Path, tiny_hf: TinyHf
) -> None:
    shutil.rmtree(artifact / "weights")
    assert tscompile("check", artifact, "--no-weights").code == 0
    without = tscompile("check", artifact)
    assert without.code == 1
    assert "tscompile weights" in without.err
    assert tscompile("weights", artifact, "--from", tiny_hf("qwen2")).code == 0
    assert tscompile("check", artifact).code == 0
    for file in (built / "weights").iterdir():
        assert (artifact / "weights" / file.name).read_bytes() == file.read_bytes()


def test_another_checkpoint_does_not_fit_the_seal(
    tscompile: Run, artifact: Path, tiny_hf: TinyHf
) -> None:
    shutil.rmtree(artifact / "weights")
    done = tscompile("weights", artifact, "--from", tiny_hf("qwen2", seed=5))
    assert done.code == 1
    assert "the manifest seals" in done.err
    assert not (artifact / "weights").exists()
    assert [p.name for p in artifact.iterdir() if p.name.startswith(".")] == []
