"""GGUF checkpoints: dequantized and named as transformers does; damage and the unknown refused."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import checkpoints
import gguf_checkpoints
import numpy as np
import pytest
import torch
from gguf_checkpoints import GgufFamily

from tscompile.checkpoint import Checkpoint, check_tensors, open_checkpoint
from tscompile.checkpoint.gguf_file import GgufFile
from tscompile.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointUnsupportedError,
    DigestMismatchError,
    NonFiniteWeightError,
)
from tscompile.recipe import load


def open_file(path: Path, *overrides: str) -> Checkpoint:
    recipe = path.parent / f"{path.stem}.yaml"
    recipe.write_text(f"name: t\nmodel:\n  source: {path.name}\n")
    return open_checkpoint(load(recipe, overrides))


def test_smollm2_equals_what_transformers_dequantizes(smollm2_gguf: Path) -> None:
    root = Path(__file__).parents[2]
    checkpoint = open_checkpoint(load(root / "recipes/smollm2-135m-cpu.yaml"))
    reference, config = checkpoints.transformers_gguf(smollm2_gguf)
    expected = {n: tuple(t.shape) for n, t in reference.items() if n != "lm_head.weight"}
    check_tensors(checkpoint, expected, tied=True, where="test")
    differing = [n for n in expected if not torch.equal(checkpoint.read(n), reference[n])]
    assert differing == []
    assert list(checkpoint.files) == [smollm2_gguf.name]
    assert_same_config(checkpoint.config, config.to_dict())
    assert_same_config(checkpoint.config, checkpoints.smollm2_config().to_dict())


def assert_same_config(ours: Mapping[str, object], theirs: dict[str, Any]) -> None:
    rope = theirs["rope_parameters"]
    assert (rope["rope_type"], rope["rope_theta"]) == ("default", ours["rope_theta"])
    assert ours["rope_scaling"] is None
    names = ours.keys() - {"rope_theta", "rope_scaling", "architectures"}
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


@pytest.mark.parametrize("quantization", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0"])
def test_dequantized_tensors_equal_transformers(tmp_path: Path, quantization: str) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, quantization=quantization, intermediate_size=192)
    reference: dict[str, torch.Tensor] = checkpoints.load_reference(path).state_dict()
    checkpoint = open_file(path)
    for name in checkpoint.tensors:
        assert torch.equal(checkpoint.read(name), reference[name]), name


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_each_architecture_gives_back_the_tensors_that_were_converted(
    tmp_path: Path, family: GgufFamily, tied: bool
) -> None:
    path = tmp_path / "t.gguf"
    state = gguf_checkpoints.save_tiny_gguf(family, path, tie_word_embeddings=tied)
    checkpoint = open_file(path)
    assert set(checkpoint.tensors) == set(state)
    for name, tensor in state.items():
        assert torch.equal(checkpoint.read(name), tensor), name
    config = checkpoints.tiny_config(family, tie_word_embeddings=tied).to_dict()
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "vocab_size", "tie_word_embeddings", "model_type",
             "max_position_embeddings")  # fmt: skip
    assert {n: checkpoint.config[n] for n in names} == {n: config[n] for n in names}
    assert checkpoint.config["head_dim"] == (16 if family == "qwen3" else 8)


@pytest.mark.parametrize("quantization", ["F32", "F16", "Q8_0", "Q4_1"])
def test_a_slice_is_a_slice(tmp_path: Path, quantization: str) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, quantization=quantization, intermediate_size=192)
    checkpoint = open_file(path)
    for name, info in checkpoint.tensors.items():
        whole = checkpoint.read(name)
        for dim, size in enumerate(info.shape):
            for start, count in ((0, size), (size // 3, size // 3), (size // 2 + 1, 3)):
                part = checkpoint.read_slice(name, dim, start, count)
                assert torch.equal(part, whole.narrow(dim, start, count)), (name, dim, start)


def test_yarn_and_linear_scaling_reach_the_config(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    keys = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    gguf_checkpoints.save_tiny_gguf("llama", path, metadata=keys)
    assert open_file(path).config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    keys |= {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.original_context_length": 128,
    }
    gguf_checkpoints.save_tiny_gguf("llama", path, metadata=keys)
    assert open_file(path).config["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
    }


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ({"general.architecture": "gemma3"}, {}, "architecture 'gemma3' .*known: llama, qwen2"),
        ({"llama.rope.scaling.type": "longrope"}, {}, "RoPE scaling 'longrope'"),
        ({}, {"rope_freqs.weight": np.ones(4, np.float32)}, "rope_freqs.weight"),
        ({"llama.rope.dimension_count": 4}, {}, "RoPE over 4 of 8 dims"),
        ({"tokenizer.ggml.model": "llama"}, {}, "tokenizer model 'llama' .*known: gpt2"),
        ({"tokenizer.ggml.pre": "tekken"}, {}, "pre-tokenizer 'tekken' .*known: gpt-2, smollm"),
    ],
)
def test_what_is_not_supported_is_named(
    tmp_path: Path, metadata: dict[str, Any], tensors: dict[str, Any], message: str
) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, metadata=metadata, tensors=tensors)
    with pytest.raises(CheckpointUnsupportedError, match=message):
        open_file(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.embedding_length": "x"}, "llama.embedding_length is 'x', a positive whole"),
        ({"llama.attention.head_count": 0}, "head_count is 0"),
        ({"llama.attention.head_count": 11}, "no multiple of 2 \\* 11 heads"),
    ],
)
def test_metadata_that_is_missing_or_senseless(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, metadata=metadata)
    with pytest.raises(CheckpointDamagedError, match=message):
        open_file(path)


def test_a_type_that_cannot_be_dequantized(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, tensors={"extra": np.ones(8, np.int32)})
    with pytest.raises(CheckpointUnsupportedError, match="extra has the type I32"):
        open_file(path)


def test_an_unknown_tensor_is_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    extra = {"blk.0.ffn_gate_inp.weight": np.ones((2, 96), np.float32)}
    state = gguf_checkpoints.save_tiny_gguf("llama", path, tensors=extra)
    assert set(open_file(path).tensors) == {*state, "blk.0.ffn_gate_inp.weight"}


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="there is no"):
        open_file(tmp_path / "t.gguf")


def small(path: Path) -> bytes:
    """A GGUF file of a few hundred bytes."""
    metadata = {"general.architecture": "llama", "a": [1, 2], "b": ["x", "yz"], "c": 1.5, "d": True}
    tensors = {"t": np.arange(64, dtype=np.float32).reshape(2, 32), "u": np.ones(3, np.float32)}
    gguf_checkpoints.write_gguf(path, metadata, tensors, "Q8_0")
    return path.read_bytes()


def test_a_file_cut_short_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    whole = small(path)
    tensors = GgufFile(path).tensors
    end = max(entry.end for entry in tensors.values())
    for size in range(end):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointDamagedError):
            GgufFile(path)


def test_smollm2_cut_short(smollm2_gguf: Path, tmp_path: Path) -> None:
    whole = smollm2_gguf.read_bytes()
    path = tmp_path / "t.gguf"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointDamagedError, match=r"cut short: .* but the file has 49181216"):
        open_file(path)


def test_any_flipped_bit_of_the_structure_is_found_or_changes_what_it_says(tmp_path: Path) -> None:
    """No flip may crash, or pass unnoticed as the same file."""
    path = tmp_path / "t.gguf"
    whole = small(path)
    intact = GgufFile(path)
    said = (intact.metadata, intact.tensors)
    start = min(entry.begin for entry in intact.tensors.values())
    refused = 0
    unnoticed: list[int] = []
    for bit in range(8 * start):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        try:
            file = GgufFile(path)
        except (CheckpointDamagedError, CheckpointUnsupportedError):
            refused += 1
            continue
        if (file.metadata, file.tensors) == said:
            unnoticed.append(bit)
    before_padding = len(whole[:start].rstrip(b"\0"))
    # version 3 became 2, whose layout is the same; an array of int32 became one of uint32
    assert len([bit for bit in unnoticed if bit // 8 < before_padding]) == 2
    assert refused > 4 * start


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (0, "<4s", b"GGML", "begins with b'GGML'"),
        (8, "<Q", 1 << 60, "cut short or damaged"),
        (16, "<Q", 1 << 60, "cut short or damaged"),
    ],
)
def test_a_header_that_lies(tmp_path: Path, at: int, form: str, value: Any, message: str) -> None:
    path = tmp_path / "t.gguf"
    damaged = bytearray(small(path))
    struct.pack_into(form, damaged, at, value)
    path.write_bytes(bytes(damaged))
    with pytest.raises(CheckpointDamagedError, match=message):
        GgufFile(path)


def test_big_endian_and_old_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    damaged = bytearray(small(path))
    for version in (1, 3 << 24):
        struct.pack_into("<I", damaged, 4, version)
        path.write_bytes(bytes(damaged))
        with pytest.raises(CheckpointUnsupportedError, match=f"GGUF version {version}"):
            GgufFile(path)


def test_a_flipped_bit_in_tensor_data_is_found_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path)
    digest = open_file(path).files["t.gguf"]
    open_file(path, f"model.sha256={digest}")
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 4
    path.write_bytes(bytes(raw))
    with pytest.raises(DigestMismatchError, match=f"is [0-9a-f]{{64}}, expected {digest}"):
        open_file(path, f"model.sha256={digest}")


def test_a_weight_that_is_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    norm = np.ones(96, np.float32)
    norm[5] = np.nan
    gguf_checkpoints.save_tiny_gguf("llama", path, tensors={"output_norm.weight": norm})
    with pytest.raises(
        NonFiniteWeightError, match=r"model.norm.weight holds 1 values .* first nan"
    ):
        open_file(path).read("model.norm.weight")
