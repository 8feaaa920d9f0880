"""An artifact's kernels for a GPU: the same bytes anywhere, and nothing damaged is loaded."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from checkpoints import TinyHf
from deployments import build, command, manifest, recipe, write_recipe

from tskernels.ops.sampling.words import DrawKind
from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.artifact.launches import load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.schema import Plan

CUDA = {"device": "cuda", "arch": "sm_90", "topology": "h200-nvlink-8"}
SMALL: dict[str, Any] = {
    "dtype": "bfloat16",
    "target": CUDA,
    "buckets": {"decode": [1], "extend": [[32, 1]]},
    "limits": {"max_model_len": 64, "max_batch": 1, "token_budget": 32},
    "kv_cache": {"page_size": 16, "pages": 9},
}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, tiny_hf: TinyHf) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "checkpoint").symlink_to(tiny_hf("qwen3"))
    return build(folder, recipe("checkpoint", **SMALL))


def files(artifact: Path) -> dict[str, bytes]:
    found = [path for path in artifact.rglob("*") if path.is_file()]
    return {str(path.relative_to(artifact)): path.read_bytes() for path in found}


def load(artifact: Path, plan: Plan) -> None:
    load_code(artifact, read_manifest(artifact), plan)


def test_every_op_is_launched_or_a_view(artifact: Path) -> None:
    plan = load_plan(artifact)
    code = load_code(artifact, read_manifest(artifact), plan)
    launches = code.launches
    assert len(code.cubins) == len(launches.cubins) > 10
    assert all(data.startswith(b"\x7fELF") for data in code.cubins)
    for program in plan.programs:
        calls = launches.programs[program.name]
        host = {op.pin for op, call in zip(program.ops, calls.ops, strict=True) if call is None} - {
            "view"
        }
        assert host <= {"linear.cublas"}
        for call in launches.calls:
            for launch in call.launches:
                assert launch.cubin < len(launches.cubins)
                assert launch.early


def machine(cubin: bytes) -> str:
    """The architecture that an ELF file of machine code is for, by the flags of its header."""
    (flags,) = struct.unpack_from("<I", cubin, 48)
    number = flags & 0xFF if cubin[7] == 0x33 else flags >> 8 & 0xFF
    return f"sm_{number}"


@pytest.mark.parametrize(
    ("arch", "topology"), [("sm_80", "h100-nvlink-8"), ("sm_100", "b200-nvlink-8")]
)
def test_an_artifact_for_another_gpu_holds_code_for_it_alone(
    arch: str, topology: str, artifact: Path, tiny_hf: TinyHf, tmp_path: Path
) -> None:
    target = {"device": "cuda", "arch": arch, "topology": topology}
    sections: dict[str, Any] = {**SMALL, "target": target}
    other = build(tmp_path, recipe(tiny_hf("qwen3"), **sections))
    for built, wanted in ((artifact, "sm_90"), (other, arch)):
        code = load_code(built, read_manifest(built), load_plan(built))
        assert {machine(cubin) for cubin in code.cubins} == {wanted}
        for calls in code.launches.programs.values():
            assert set(calls.draws) == set(DrawKind)


def test_code_names_no_path_and_all_is_the_same_from_another_directory(
    artifact: Path, tiny_hf: TinyHf, tmp_path: Path
) -> None:
    place = tmp_path / "another" / "deeper"
    place.mkdir(parents=True)
    (place / "checkpoint").symlink_to(tiny_hf("qwen3"))
    write_recipe(place, recipe("checkpoint", **SMALL))
    elsewhere = {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    done = command("tscompile", "build", "recipe.yaml", cwd=place, env=elsewhere)
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "cache").iterdir())  # compiled anew
    here, there = files(artifact), files(place / "artifacts" / "under-test")
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []
    assert not any(b"/tskernels/" in data for name, data in there.items() if "cubin" in name)


def test_a_cubin_with_a_flipped_byte_is_refused_by_name(artifact: Path, tmp_path: Path) -> None:
    plan, copy = load_plan(artifact), tmp_path / "copy"
    copy.mkdir()
    for path in artifact.rglob("*"):
        target = copy / path.relative_to(artifact)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    load(copy, plan)
    victim = sorted((copy / "kernels").glob("decode-*.cubin"))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    with pytest.raises(ArtifactDamaged, match=rf"kernels/{victim.name} was altered"):
        load(copy, plan)
    victim.unlink()
    with pytest.raises(ArtifactDamaged, match=rf"kernels/{victim.name} is missing"):
        load(copy, plan)


def test_pins_say_why_and_the_manifest_names_triton(artifact: Path) -> None:
    pins = json.loads((artifact / "kernels" / "pins.json").read_text())
    chosen = {pin["op"]: pin for pin in pins if pin["query"].startswith("decode")}
    assert chosen["linear"]["winner"] == "linear.triton_rows"
    losers = dict(chosen["linear"]["losers"])
    assert losers["linear.native"] == "runs on cpu, not cuda"
    assert losers["linear.triton"] == "is PORTABLE, linear.triton_rows is PERFORMANT"
    assert "triton" in manifest(artifact)["versions"]


def test_a_machine_without_that_gpu_refuses_the_artifact(artifact: Path) -> None:
    done = command("tsrun", artifact, "--prompt", "x", env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1
    assert "built for cuda sm_90, but this machine offers 0 GPUs" in done.stderr
