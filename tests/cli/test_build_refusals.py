"""`tscompile build` on bad input: one clear error, exit code 1, nothing written."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import TinyHf, save_tiny_hf
from deployments import Done, Run, recipe, write_recipe
from safetensors.torch import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from tscompile.freeze.safetensors_writer import SafetensorsWriter

Refusal = Callable[..., str]


@pytest.fixture
def refused(tscompile: Run, tmp_path: Path) -> Refusal:
    """Build `contents`, which must fail with exit code 1 and leave nothing; the message."""

    def build(contents: dict[str, Any] | str, *options: str) -> str:
        path = tmp_path / "recipe.yaml"
        if isinstance(contents, str):
            path.write_text(contents)
        else:
            write_recipe(tmp_path, contents)
        return checked(tscompile("build", path, "--out", tmp_path / "out" / "a", *options))

    def checked(done: Done) -> str:
        assert done.code == 1
        assert done.out == ""
        assert done.err.startswith("error[TS")
        assert "fix: " in done.err
        assert "Traceback" not in done.err
        out = tmp_path / "out"
        assert not out.exists() or list(out.iterdir()) == []
        return done.err

    return build


@pytest.fixture
def own_copy(tmp_path: Path) -> Path:
    """A tiny checkpoint that the test may damage."""
    return save_tiny_hf("qwen2", tmp_path / "checkpoint", shards=1, seed=0)


def edit_tensors(source: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = source / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def test_no_recipe(tscompile: Run, tmp_path: Path) -> None:
    done = tscompile("build", tmp_path / "absent.yaml")
    assert done.code == 1
    assert "absent.yaml" in done.err


def test_usage_errors_exit_2(tscompile: Run) -> None:
    assert tscompile("build").code == 2
    assert tscompile("build", "x.yaml", "--no-such-option").code == 2
    assert tscompile("bild").code == 2


def test_a_tab_in_the_yaml(refused: Refusal) -> None:
    message = refused("name: x\nmodel:\n\tsource: y\n")
    assert "recipe.yaml:3" in message
    assert "tab" in message


def test_an_unknown_key_names_the_nearest(refused: Refusal, own_copy: Path) -> None:
    message = refused(recipe(own_copy, kv_cache={"page_sise": 16}))
    assert "page_sise" in message
    assert "page_size" in message


def test_a_negative_size(refused: Refusal, own_copy: Path) -> None:
    message = refused(recipe(own_copy, limits={"max_batch": -4}))
    assert "limits.max_batch" in message
    assert "-4" in message


def test_all_errors_come_at_once(refused: Refusal, own_copy: Path) -> None:
    message = refused(recipe(own_copy, limits={"max_batch": -4}, kv_cache={"page_size": 0}))
    assert "limits.max_batch" in message
    assert "kv_cache.page_size" in message


def test_a_world_that_the_groups_do_not_divide(refused: Refusal, own_copy: Path) -> None:
    message = refused(recipe(own_copy) | {"parallel": {"world": 6, "attn_tp": 4}})
    assert "6" in message
    assert "4" in message
    assert "parallel" in message


def test_two_ranks_for_nine_heads_states_the_legal_sizes(
    refused: Refusal, smollm2_gguf: Path
) -> None:
    message = refused(recipe(smollm2_gguf, world=2))
    assert "9 attention heads and 3 KV heads" in message
    assert "legal sizes of attn_tp for this model: 1, 3, 9" in message


def test_a_missing_checkpoint(refused: Refusal, tmp_path: Path) -> None:
    assert "nowhere" in refused(recipe(tmp_path / "nowhere"))


def test_a_missing_safetensors_shard(refused: Refusal, tiny_hf: TinyHf, tmp_path: Path) -> None:
    source = tmp_path / "sharded"
    shutil.copytree(tiny_hf("llama3", shards=2), source)
    shard = sorted(source.glob("model-*.safetensors"))[-1]
    shard.unlink()
    assert shard.name in refused(recipe(source))


@pytest.mark.parametrize("keep", [4, 200, -1])
def test_a_safetensors_file_cut_short(refused: Refusal, own_copy: Path, keep: int) -> None:
    file = own_copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert "model.safetensors" in refused(recipe(own_copy))


def test_a_bit_flipped_in_a_safetensors_header(refused: Refusal, own_copy: Path) -> None:
    file = own_copy / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[9] ^= 0x40
    file.write_bytes(data)
    assert "model.safetensors" in refused(recipe(own_copy))


def test_a_bit_flipped_in_safetensors_data_under_a_known_digest(
    refused: Refusal, own_copy: Path
) -> None:
    file = own_copy / "model.safetensors"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    contents = recipe(own_copy)
    contents["model"]["sha256"] = {"model.safetensors": digest}
    message = refused(contents)
    assert digest in message
    assert hashlib.sha256(data).hexdigest() in message


def test_a_gguf_file_that_is_missing(refused: Refusal, tmp_path: Path) -> None:
    assert "absent.gguf" in refused(recipe(tmp_path / "absent.gguf"))


@pytest.mark.parametrize("keep", [3, 5_000, 50_000_000, -1])
def test_a_gguf_file_cut_short(
    refused: Refusal, tmp_path: Path, smollm2_gguf: Path, keep: int
) -> None:
    with smollm2_gguf.open("rb") as file:
        size = keep if keep > 0 else smollm2_gguf.stat().st_size + keep
        (tmp_path / "short.gguf").write_bytes(file.read(size))
    assert "short.gguf" in refused(recipe(tmp_path / "short.gguf"))


def test_a_gguf_file_with_a_flipped_bit_under_a_known_digest(
    refused: Refusal, tmp_path: Path, smollm2_gguf: Path
) -> None:
    data = bytearray(smollm2_gguf.read_bytes())
    digest = hashlib.sha256(data).hexdigest()
    data[-1000] ^= 1
    (tmp_path / "flipped.gguf").write_bytes(data)
    contents = recipe(tmp_path / "flipped.gguf")
    contents["model"]["sha256"] = digest
    message = refused(contents)
    assert "flipped.gguf" in message
    assert digest in message


def test_a_tensor_too_many(refused: Refusal, own_copy: Path) -> None:
    edit_tensors(own_copy, lambda t: t.update({"model.extra.weight": torch.zeros(3)}))
    assert "model.extra.weight" in refused(recipe(own_copy))


def test_a_tensor_one_too_few(refused: Refusal, own_copy: Path) -> None:
    edit_tensors(own_copy, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    assert "model.layers.1.mlp.up_proj.weight" in refused(recipe(own_copy))


def test_a_tensor_of_another_shape(refused: Refusal, own_copy: Path) -> None:
    edit_tensors(own_copy, lambda t: t.update({"model.norm.weight": torch.ones(95)}))
    message = refused(recipe(own_copy))
    assert "model.norm.weight" in message
    assert "95" in message
    assert "96" in message


def test_no_chat_template_is_refused_at_build(
    refused: Refusal, tscompile: Run, tmp_path: Path
) -> None:
    source = save_tiny_hf("llama", tmp_path / "bare", shards=1, seed=0, chat_template=None)
    message = refused(recipe(source))
    assert "chat template" in message
    assert "chat: false" in message
    path = write_recipe(tmp_path, recipe(source, chat=False))
    assert tscompile("build", path, "--out", tmp_path / "fine").code == 0


def test_a_model_length_beyond_the_pool_states_the_largest(
    refused: Refusal, own_copy: Path
) -> None:
    contents = recipe(own_copy, kv_cache={"page_size": 16, "pages": 9})
    message = refused(contents)
    assert "256" in message
    assert "128" in message


def test_an_unknown_architecture_is_refused_by_name(refused: Refusal, own_copy: Path) -> None:
    config = json.loads((own_copy / "config.json").read_text())
    config["architectures"] = ["MambaForCausalLM"]
    (own_copy / "config.json").write_text(json.dumps(config))
    message = refused(recipe(own_copy))
    assert "MambaForCausalLM" in message
    assert "LlamaForCausalLM" in message


def test_a_full_disk_leaves_nothing_half_written(
    refused: Refusal, own_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = SafetensorsWriter.write
    calls: list[str] = []

    def fill_up(self: SafetensorsWriter, name: str, tensor: torch.Tensor) -> None:
        calls.append(name)
        if len(calls) == 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(self, name, tensor)

    monkeypatch.setattr(SafetensorsWriter, "write", fill_up)
    assert "the disk is full" in refused(recipe(own_copy))
    assert len(calls) == 10


def test_a_destination_that_is_no_artifact_is_kept(
    tscompile: Run, own_copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").write_text("precious")
    path = write_recipe(tmp_path, recipe(own_copy))
    done = tscompile("build", path, "--out", tmp_path / "thesis")
    assert done.code == 1
    assert "holds no artifact" in done.err
    assert (tmp_path / "thesis" / "text").read_text() == "precious"
