"""Weights that several threads read from an artifact's files are what the files hold."""

from __future__ import annotations

import os
import re
from pathlib import Path
from shutil import copytree

import pytest
import torch
from checkpoints import TinyHf
from deployments import build, recipe
from sealing import reseal

from tsruntime.artifact.digest import PIECE_BYTES
from tsruntime.artifact.errors import ArtifactDamaged, WeightsAbsent
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import manifest_bytes, read_manifest, seal
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor import loading
from tsruntime.executor.loading import DeviceWeights, print_progress
from tsruntime.workers.child import verify_share
from tsruntime.workers.settings import RankSettings

PIECE = 3_000


def untold(done: int, total: int, seconds: float) -> None:
    """Progress that nobody sees."""


@pytest.fixture(scope="module")
def artifact(tiny_hf: TinyHf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("weights"), recipe(tiny_hf("qwen3"), dtype="bfloat16"))


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    """The artifact in small pieces, for a test that damages its weights."""
    return reseal(Path(copytree(artifact, tmp_path / "copy")), PIECE)


def load(artifact: Path) -> None:
    plan = load_plan(artifact)
    DeviceWeights(artifact, plan, 0, "cpu", untold).tensor(plan.weights[0].name)


@pytest.mark.parametrize("block", [1_001, PIECE, loading.BLOCK_BYTES])
@pytest.mark.parametrize("piece", [PIECE, PIECE_BYTES])
def test_every_weight_has_the_bits_of_its_file_of_which_each_byte_is_read_once(
    artifact: Path, tmp_path: Path, piece: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = reseal(Path(copytree(artifact, tmp_path / "copy")), piece)
    monkeypatch.setattr(loading, "BLOCK_BYTES", block)
    plan, told = load_plan(artifact), list[tuple[int, int]]()
    read = list[tuple[str, int, int]]()
    preadv = os.preadv

    def counting(number: int, buffers: list[memoryview], offset: int) -> int:
        count = preadv(number, buffers, offset)
        read.append((Path(f"/proc/self/fd/{number}").resolve().name, offset, offset + count))
        return count

    def tell(done: int, total: int, seconds: float) -> None:
        told.append((done, total))

    monkeypatch.setattr(os, "preadv", counting)
    there = DeviceWeights(artifact, plan, 0, "cpu", tell)
    here = WeightStore(artifact, plan, 0)
    for weight in plan.weights:
        assert torch.equal(there.tensor(weight.name), here.tensor(weight.name))
    sizes = {path.name: path.stat().st_size for path in (artifact / "weights").iterdir()}
    for name, size in sizes.items():
        spans = sorted((first, last) for file, first, last in read if file == name)
        assert [first for first, _ in spans] == [0, *(last for _, last in spans[:-1])]
        assert spans[-1][1] == size
    assert told[-1] == (sum(sizes.values()), sum(sizes.values()))


def test_a_flipped_byte_anywhere_is_refused_by_name(copy: Path) -> None:
    (victim,) = (copy / "weights").iterdir()
    data = victim.read_bytes()
    ends = [at + side for at in range(PIECE, len(data), PIECE) for side in (-1, 0)]
    for at in (0, 9, 50, len(data) // 2, len(data) - 1, *ends[:: max(1, len(ends) // 20)]):
        victim.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        first = at - at % PIECE
        match = rf"weights/{victim.name} was altered between bytes {first} and .* sealed as"
        with pytest.raises(ArtifactDamaged, match=match):
            load(copy)
    victim.write_bytes(data)
    load(copy)


def test_a_file_of_another_length_or_none_is_named(copy: Path) -> None:
    (victim,) = (copy / "weights").iterdir()
    data = victim.read_bytes()
    for other in (data[:-5], data[:-PIECE], data + b"\0", data + data[:PIECE]):
        victim.write_bytes(other)
        sizes = f"has {len(other)} bytes, sealed with {len(data)}"
        with pytest.raises(ArtifactDamaged, match=f"weights/{victim.name} {sizes}"):
            load(copy)
    victim.unlink()
    with pytest.raises(WeightsAbsent, match=re.escape(victim.name)):
        load(copy)


def test_a_file_that_shrinks_while_it_is_read_is_named(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def short(number: int, buffers: list[memoryview], offset: int) -> int:
        return preadv(number, [buffers[0][:-1]], offset)

    monkeypatch.setattr(os, "preadv", short)
    with pytest.raises(ArtifactDamaged, match=r"weights/.* is cut short"):
        load(copy)


def test_sealed_files_that_are_not_the_plans_are_refused(copy: Path) -> None:
    (victim,) = (copy / "weights").iterdir()
    data = victim.read_bytes()
    victim.write_bytes(data.replace(b'"dtype":"BF16"', b'"dtype":"F16" '))
    reseal(copy, PIECE)
    with pytest.raises(ArtifactDamaged, match=rf"weights/{victim.name} holds other tensors than"):
        load(copy)
    victim.write_bytes(data[:-2])
    reseal(copy, PIECE)
    sizes = f"has {len(data) - 2} bytes, the plan's tensors make {len(data)}"
    with pytest.raises(ArtifactDamaged, match=f"weights/{victim.name} {sizes}"):
        load(copy)
    old = read_manifest(copy)
    left = {name: entry for name, entry in old.files.items() if not name.startswith("weights/")}
    new = seal(old.name, old.target, left, old.consumed, old.versions, PIECE)
    (copy / "manifest.json").write_bytes(manifest_bytes(new))
    with pytest.raises(ArtifactDamaged, match=f"weights/{victim.name}, which is not sealed"):
        load(copy)


def test_a_rank_checks_the_files_before_it_maps_them_and_not_before_it_reads_them(
    copy: Path,
) -> None:
    settings = RankSettings(str(copy), 0, 1, 1, "", -1, -1, 0.0)
    (victim,) = (copy / "weights").iterdir()
    verify_share(settings)
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    with pytest.raises(ArtifactDamaged, match=f"weights/{victim.name} was altered"):
        verify_share(settings)
    old = read_manifest(copy)
    new = seal(old.name, {"device": "cuda"}, old.files, old.consumed, old.versions, PIECE)
    (copy / "manifest.json").write_bytes(manifest_bytes(new))
    verify_share(settings)
    with pytest.raises(ArtifactDamaged, match=f"weights/{victim.name} was altered"):
        load(copy)


def test_progress_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_progress(3_000_000_000, 15_140_000_000, 0.5)
    read = capsys.readouterr()
    assert read.out == ""
    assert read.err == "weights: 3.00 of 15.14 GB, 6.00 GB/s\n"
