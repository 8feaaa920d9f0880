"""Kernels of a pack in an artifact: pinned where they win, carried whole, run only if trusted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deployments import build, manifest, recipe, write_recipe
from tiny_packs import empty_functions, pack

from tscompile.cli import main
from tscompile.packs import open_packs
from tscompile.recipe import load
from tskernels.packs.errors import PackMisfit, PackUntrusted
from tskernels.packs.manifest import Signature, read_pack
from tskernels.packs.sources import FLASHINFER_FA3
from tsruntime.artifact.errors import ArtifactDamaged
from tsruntime.artifact.launches import Launches, load_code
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import FileEntry, manifest_bytes, read_manifest, seal
from tsruntime.cli import main as tsrun

FUNCTIONS = FLASHINFER_FA3.functions
MODEL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_act": "silu",
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "attention_bias": False,
    "max_position_embeddings": 512,
    "vocab_size": 384,
    "tie_word_embeddings": False,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def contents(folder: Path, *packs: Path, **changes: Any) -> dict[str, Any]:
    """A recipe for a model with heads 128 wide."""
    (folder / "config.json").write_text(json.dumps(MODEL))
    sections: dict[str, Any] = {
        "model": {"config": str(folder / "config.json"), "weights": "dummy"},
        "dtype": "bfloat16",
        "target": {"device": "cuda", "arch": "sm_90", "topology": "h200-nvlink-8"},
        "buckets": {"decode": [1], "extend": [[32, 1]]},
        "limits": {"max_model_len": 64, "max_batch": 1, "token_budget": 32},
        "kv_cache": {"page_size": 16, "pages": 9},
        "kernels": {"packs": [str(path) for path in packs]},
        "chat": False,
    }
    return recipe("unused") | sections | changes


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    return pack(folder, FLASHINFER_FA3.name, FUNCTIONS, empty_functions(FUNCTIONS))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, given: Path) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    return build(folder, contents(folder, given))


def code_of(artifact: Path, *trusted: str) -> Any:
    return load_code(artifact, read_manifest(artifact), load_plan(artifact), trusted)


def pins(artifact: Path) -> dict[str, Any]:
    found = json.loads((artifact / "kernels" / "pins.json").read_text())
    return {pin["query"].split("(")[0]: pin for pin in found}


def test_its_kernel_is_pinned_where_it_wins(artifact: Path, tmp_path: Path) -> None:
    chosen = pins(artifact)
    extend = chosen["extend attention"]
    assert extend["winner"] == "attention.flashinfer_fa3"
    losers = dict(extend["losers"])
    assert losers["attention.triton"] == "is PORTABLE, attention.flashinfer_fa3 is PERFORMANT"
    assert losers["attention.triton_extend"] == "has priority 8, attention.flashinfer_fa3 has 9"
    decode = dict(chosen["decode attention"]["losers"])
    assert decode["attention.flashinfer_fa3"] == "is for extend, not decode"
    plan = load_plan(artifact)
    pinned = {(p.phase, op.pin) for p in plan.programs for op in p.ops if op.op == "attention"}
    assert pinned == {("extend", "attention.flashinfer_fa3"), ("decode", "attention.triton_decode")}
    without = pins(build(tmp_path, contents(tmp_path)))["extend attention"]
    assert without["winner"] == "attention.triton_extend"
    said = "needs kernel pack flashinfer_fa3, which the recipe does not name"
    assert dict(without["losers"])["attention.flashinfer_fa3"] == said


def test_the_artifact_carries_the_library_and_names_its_digest(artifact: Path, given: Path) -> None:
    described, library = read_pack(given)
    code = code_of(artifact, described.digest)
    (file,) = code.launches.packs
    assert (file.name, file.version, file.arch) == ("flashinfer_fa3", "1.2", "sm_90")
    assert file.digest == described.digest
    assert code.packs == (library,)
    sealed = manifest(artifact)
    assert sealed["consumed"]["pack flashinfer_fa3"] == described.digest
    assert sealed["files"][file.file]["sha256"] == [described.digest]


def test_a_call_is_data_that_fits_what_the_pack_declares(artifact: Path, given: Path) -> None:
    described, _ = read_pack(given)
    launches: Launches = code_of(artifact, described.digest).launches
    (call,) = [call for call in launches.calls if call.from_pack]
    (run,), (prepare,) = call.from_pack, call.prepare
    for each in (run, prepare):
        taken = Signature(len(each.addresses), len(each.integers), len(each.reals))
        assert taken == FUNCTIONS[each.function]
    assert run.integers[:6] == (32, 1, 4, 2, 16, 9)  # rows, sequences, heads, page size, pages
    assert prepare.integers[-1] <= launches.step_bytes
    assert run.reals == (128**-0.5,)
    spaces = [[address.space for address in each.addresses] for each in (run, prepare)]
    assert spaces == [["input"] * 3 + ["step", "output"], ["input", "input", "host", "step"]]


def test_untrusted_code_is_refused_by_name(artifact: Path, given: Path) -> None:
    digest, other = read_pack(given)[0].digest, "ab" * 32
    with pytest.raises(PackUntrusted, match=f"flashinfer_fa3 1.2 has sha256 {digest}, but nothing"):
        code_of(artifact)
    with pytest.raises(PackUntrusted, match=f"{digest}, but only {other} is trusted") as refused:
        code_of(artifact, other)
    assert "--trust-pack" in refused.value.remedy
    done = CliRunner().invoke(tsrun, [str(artifact), "--trust-pack", digest[:20]])
    assert done.exit_code == 2
    assert "is no SHA-256 of 64 hexadecimal digits" in done.output


def reseal(artifact: Path, changed: dict[str, bytes]) -> None:
    """Put other files in their place, with a manifest that says so."""
    old = read_manifest(artifact)
    for name, data in changed.items():
        (artifact / name).write_bytes(data)
    entries = {name: FileEntry.of(data) for name, data in changed.items()}
    new = seal(old.name, old.target, dict(old.files) | entries, old.consumed, old.versions)
    (artifact / "manifest.json").write_bytes(manifest_bytes(new))


def test_another_library_under_a_trusted_name_is_refused(
    artifact: Path, given: Path, tmp_path: Path
) -> None:
    digest = read_pack(given)[0].digest
    (file,) = code_of(artifact, digest).launches.packs
    copy = tmp_path / "copy"
    shutil.copytree(artifact, copy)
    data = bytearray((copy / file.file).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / file.file).write_bytes(data)
    with pytest.raises(ArtifactDamaged, match=f"{file.file} was altered"):
        code_of(copy, digest)
    reseal(copy, {file.file: bytes(data)})
    with pytest.raises(ArtifactDamaged, match=rf"{file.file} has sha256 .* says {digest}"):
        code_of(copy, digest)
    launches = json.loads((artifact / "kernels" / "launches.json").read_text())
    launches["packs"][0]["arch"] = "sm_100"
    shutil.copyfile(artifact / file.file, copy / file.file)
    text = json.dumps(launches).encode()
    reseal(copy, {file.file: (copy / file.file).read_bytes(), "kernels/launches.json": text})
    with pytest.raises(PackMisfit, match="flashinfer_fa3 is for sm_100, the plan for sm_90"):
        code_of(copy, digest)


def opened(folder: Path, *packs: Path, **changes: Any) -> Any:
    return open_packs(load(write_recipe(folder, contents(folder, *packs, **changes)), ()))


def test_a_pack_that_is_of_no_use_is_refused_at_build(given: Path, tmp_path: Path) -> None:
    with pytest.raises(PackMisfit, match="both kernel pack flashinfer_fa3"):
        opened(tmp_path, given, given)
    stranger = pack(tmp_path, "stranger", {}, empty_functions({}))
    with pytest.raises(PackMisfit, match="no kernel needs a pack named stranger") as refused:
        opened(tmp_path, stranger)
    assert "kernels" in refused.value.where
    blackwell = {"device": "cuda", "arch": "sm_100", "topology": "b200-nvlink-8"}
    with pytest.raises(PackMisfit, match=r"is for sm_90, target\.arch is sm_100"):
        opened(tmp_path, given, target=blackwell)


def test_a_pack_whose_functions_are_called_otherwise_is_refused_at_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fewer = {**FUNCTIONS, "flashinfer_fa3_run": Signature(5, 9, 1)}
    older = pack(tmp_path, FLASHINFER_FA3.name, fewer, empty_functions(fewer))
    words = ["build", str(write_recipe(tmp_path, contents(tmp_path, older))), "--out"]
    with pytest.raises(SystemExit) as ended:
        main([*words, str(tmp_path / "artifact")])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "TS0411" in said
    assert "integers=9" in said
    assert "integers=10" in said
    assert not (tmp_path / "artifact").exists()
