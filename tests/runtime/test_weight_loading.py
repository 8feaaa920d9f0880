"""Weights that several threads read from an artifact's files are what the files hold."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from checkpoints import TinyHf
from deployments import build, recipe

from tsruntime.artifact.errors import ArtifactDamaged, WeightsAbsent
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor import loading
from tsruntime.executor.loading import DeviceWeights, print_progress


def untold(done: int, total: int, seconds: float) -> None:
    """Progress that nobody sees."""


@pytest.fixture(scope="module")
def artifact(tiny_hf: TinyHf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("weights"), recipe(tiny_hf("qwen3"), dtype="bfloat16"))


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    """The artifact, for a test that damages its weights."""
    (tmp_path / "weights").mkdir()
    for path in artifact.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in (artifact / "weights").iterdir():
        (tmp_path / "weights" / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize("piece", [1_001, loading.PIECE_BYTES])
def test_every_weight_has_the_bits_of_its_file(
    artifact: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PIECE_BYTES", piece)
    plan, told = load_plan(artifact), list[tuple[int, int]]()

    def tell(done: int, total: int, seconds: float) -> None:
        told.append((done, total))

    there = DeviceWeights(artifact, plan, 0, "cpu", tell)
    here = WeightStore(artifact, plan, 0)
    for weight in plan.weights:
        assert torch.equal(there.tensor(weight.name), here.tensor(weight.name))
    total = sum(math.prod(w.shape) * w.dtype.itemsize for w in plan.weights if w.constant is None)
    assert told[-1] == (total, total)


def test_a_file_that_is_cut_short_is_named(copy: Path) -> None:
    plan = load_plan(copy)
    (victim,) = (copy / "weights").iterdir()
    with victim.open("r+b") as file:
        file.truncate(victim.stat().st_size - 5)
    with pytest.raises(ArtifactDamaged, match=f"weights/{victim.name} is cut short"):
        DeviceWeights(copy, plan, 0, "cpu", untold).tensor(plan.weights[0].name)
    victim.write_bytes(b"\x07\0\0\0\0\0\0\0{broken")
    with pytest.raises(ArtifactDamaged, match=f"weights/{victim.name}: Expecting"):
        DeviceWeights(copy, plan, 0, "cpu", untold).tensor(plan.weights[0].name)
    victim.unlink()
    with pytest.raises(WeightsAbsent, match=re.escape(victim.name)):
        DeviceWeights(copy, plan, 0, "cpu", untold).tensor(plan.weights[0].name)


def test_a_header_that_is_not_the_plans_is_refused(copy: Path) -> None:
    plan = load_plan(copy)
    (victim,) = (copy / "weights").iterdir()
    victim.write_bytes(victim.read_bytes().replace(b'"dtype":"BF16"', b'"dtype":"F16" '))
    with pytest.raises(ArtifactDamaged, match=r"'float16'.*the plan says.*'bfloat16'"):
        DeviceWeights(copy, plan, 0, "cpu", untold).tensor(plan.weights[0].name)


def test_progress_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_progress(3_000_000_000, 15_140_000_000, 0.5)
    read = capsys.readouterr()
    assert read.out == ""
    assert read.err == "weights: 3.00 of 15.14 GB, 6.00 GB/s\n"
