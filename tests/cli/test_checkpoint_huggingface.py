"""Checkpoints in Hugging Face layout: read as transformers saved them; damage is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import checkpoints
import pytest
import safetensors.torch
import torch
from checkpoints import FAMILIES, Family, TinyHf
from their_tensors import saved_tensors

from tscompile.checkpoint import Checkpoint, check_tensors, open_checkpoint
from tscompile.checkpoint.safetensors_file import SafetensorsFile
from tscompile.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointUnsupportedError,
    ConfigError,
    DigestMismatchError,
    NonFiniteWeightError,
    TensorMismatchError,
    TokenizerError,
)
from tscompile.recipe import load

_st = cast("Any", safetensors.torch)


def open_directory(directory: Path, *overrides: str) -> Checkpoint:
    recipe = directory.parent / f"{directory.name}.yaml"
    recipe.write_text(f"name: t\nmodel:\n  source: {directory.name}\n")
    return open_checkpoint(load(recipe, overrides))


@pytest.fixture
def copy(tiny_hf: TinyHf, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a tiny checkpoint that a test may damage."""

    def make(family: Family = "llama", shards: int = 1) -> Path:
        return Path(shutil.copytree(tiny_hf(family, shards), tmp_path / "checkpoint"))

    return make


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_is_what_transformers_saved(
    tiny_hf: TinyHf, family: Family, shards: int
) -> None:
    directory = tiny_hf(family, shards)
    reference = saved_tensors(checkpoints.load_reference(directory))
    checkpoint = open_directory(directory)
    tied = bool(checkpoint.config["tie_word_embeddings"])
    expected = {name: tuple(tensor.shape) for name, tensor in reference.items()}
    check_tensors(checkpoint, expected, tied=tied, where="test")
    assert len(list(directory.glob("*.safetensors"))) > 1 or shards == 1
    for name in expected:
        assert torch.equal(checkpoint.read(name), reference[name]), name
        assert checkpoint.tensors[name].dtype == "float32"


def test_a_slice_is_a_slice(tiny_hf: TinyHf) -> None:
    checkpoint = open_directory(tiny_hf("qwen2", 3))
    for name, info in checkpoint.tensors.items():
        for dim, size in enumerate(info.shape):
            part = checkpoint.read_slice(name, dim, size // 3, size // 3)
            assert torch.equal(part, checkpoint.read(name).narrow(dim, size // 3, size // 3))
            assert part.is_contiguous()


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    saved = checkpoints.save_tiny_hf("llama", tmp_path / "c", dtype=torch.bfloat16)
    checkpoint = open_directory(saved)
    info = checkpoint.tensors["model.norm.weight"]
    assert (info.dtype, info.shape) == ("bfloat16", (96,))
    assert checkpoint.read("model.norm.weight").dtype == torch.bfloat16


def test_files_are_named_with_their_digests(copy: Callable[..., Path]) -> None:
    directory = copy(shards=3)
    files = open_directory(directory).files
    assert set(files) == {p.name for p in directory.iterdir()}
    assert all(len(digest) == 64 for digest in files.values())


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match=r"there is no .*nowhere") as caught:
        open_directory(tmp_path / "nowhere")
    assert caught.value.where.endswith("nowhere.yaml:3 model.source")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("config.json", CheckpointNotFoundError),
        ("model.safetensors", CheckpointNotFoundError),
        ("tokenizer.json", TokenizerError),
    ],
)
def test_a_missing_file(copy: Callable[..., Path], name: str, error: type[Exception]) -> None:
    directory = copy()
    (directory / name).unlink()
    with pytest.raises(error, match=name.replace(".", r"\.")):
        open_directory(directory)


def test_pickled_weights_are_never_read(copy: Callable[..., Path]) -> None:
    directory = copy()
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(CheckpointNotFoundError, match=r"pytorch_model.bin is a pickle"):
        open_directory(directory)


def test_a_missing_shard(copy: Callable[..., Path]) -> None:
    directory = copy(shards=3)
    (directory / "model-00002-of-00004.safetensors").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"model-00002-of-00004.safetensors"):
        open_directory(directory)


def test_a_file_cut_short_anywhere(copy: Callable[..., Path]) -> None:
    path = copy() / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointDamagedError):
            SafetensorsFile(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointDamagedError, match="the tensors end at byte"):
        SafetensorsFile(path)


def test_any_flipped_bit_of_the_header_length_or_layout_is_found(tmp_path: Path) -> None:
    """A flip may leave a valid header (another name); then the tensor set is not the model's."""
    path = tmp_path / "m.safetensors"
    _st.save_file({"a": torch.zeros(3), "b": torch.ones(2, 2)}, str(path))
    whole = path.read_bytes()
    expected = SafetensorsFile(path).entries
    header = 8 + int.from_bytes(whole[:8], "little")
    survivors = 0
    for bit in range(8 * header):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        try:
            found = SafetensorsFile(path).entries
        except CheckpointDamagedError:
            continue
        survivors += found == expected
        types = {name: (entry.dtype, entry.shape) for name, entry in found.items()}
        assert types != {n: (e.dtype, e.shape) for n, e in expected.items()} or found == expected
    assert survivors < 8 * 16  # padding spaces that became tabs or newlines, nothing else


HEADERS: list[tuple[str, dict[str, Any], str]] = [
    ("overlap", {"a": ["F32", [2], [0, 8]], "b": ["F32", [2], [4, 12]]}, "a and b overlap"),
    ("gap", {"a": ["F32", [1], [0, 4]], "b": ["F32", [1], [8, 12]]}, "a and b leave a gap"),
    ("late", {"a": ["F32", [2], [4, 12]]}, "begins at byte"),
    ("size", {"a": ["F32", [2], [0, 12]]}, "so 8 bytes, but its offsets .* span 12"),
    ("dtype", {"a": ["F99", [3], [0, 12]]}, "entry of a is not understood"),
    ("negative", {"a": ["F32", [-3], [0, 12]]}, "entry of a is not understood"),
    ("bool", {"a": ["F32", [True], [0, 12]]}, "entry of a is not understood"),
    ("huge", {"a": ["F32", [3], [0, 1 << 70]]}, "entry of a is not understood"),
    ("beyond", {"a": ["F32", [30], [0, 120]]}, "cut short: a ends at byte"),
]


@pytest.mark.parametrize(
    ("table", "message"), [h[1:] for h in HEADERS], ids=[h[0] for h in HEADERS]
)
def test_a_header_that_contradicts_itself(
    tmp_path: Path, table: dict[str, Any], message: str
) -> None:
    fields = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        for name, (dtype, shape, offsets) in table.items()
    }
    write_safetensors(tmp_path / "m.safetensors", json.dumps(fields).encode())
    with pytest.raises(CheckpointDamagedError, match=message):
        SafetensorsFile(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"a": 1, "a": 2}', "a name is there twice"),
        (b'{"a": 1}', "entry of a is not understood"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_header_that_is_garbage(tmp_path: Path, header: bytes, message: str) -> None:
    write_safetensors(tmp_path / "m.safetensors", header)
    with pytest.raises(CheckpointDamagedError, match=message):
        SafetensorsFile(tmp_path / "m.safetensors")


def write_safetensors(path: Path, header: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.norm.weight": "model-00001-of-00004.safetensors"}, "model.norm.weight should be"),
        ({"model.extra": "model-00001-of-00004.safetensors"}, "that file does not have it"),
        ({"model.extra": "../x.safetensors"}, "no plain file name"),
        ({"model.extra": 5}, "no plain file name"),
    ],
)
def test_an_index_that_contradicts_the_shards(
    copy: Callable[..., Path], change: dict[str, Any], message: str
) -> None:
    directory = copy(shards=3)
    index = directory / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"] | change
    checkpoints.edit_json(index, weight_map=weight_map)
    with pytest.raises(CheckpointDamagedError, match=message):
        open_directory(directory)


def test_an_empty_index(copy: Callable[..., Path]) -> None:
    directory = copy(shards=3)
    checkpoints.edit_json(directory / "model.safetensors.index.json", weight_map={})
    with pytest.raises(CheckpointDamagedError, match="weight_map is missing or empty"):
        open_directory(directory)


def test_one_tensor_in_two_shards(copy: Callable[..., Path]) -> None:
    directory = copy(shards=3)
    first, last = (directory / f"model-0000{i}-of-00004.safetensors" for i in (1, 4))
    tensors = _st.load_file(str(first)) | _st.load_file(str(last))
    _st.save_file(tensors, str(last))
    with pytest.raises(CheckpointDamagedError, match=r"is in model-00001-of-00004.safetensors too"):
        open_directory(directory)


def test_a_flipped_bit_in_tensor_data_is_found_by_its_digest(copy: Callable[..., Path]) -> None:
    directory = copy()
    path = directory / "model.safetensors"
    digest = open_directory(directory).files[path.name]
    expected = f"model.sha256={{model.safetensors: {digest}}}"
    open_directory(directory, expected)
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(
        DigestMismatchError, match=f"is [0-9a-f]{{64}}, expected {digest}"
    ) as caught:
        open_directory(directory, expected)
    assert caught.value.where == "--set model.sha256"
    with pytest.raises(CheckpointNotFoundError, match=r"no file of the checkpoint"):
        open_directory(directory, f"model.sha256={{other.safetensors: {digest}}}")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_not_finite(copy: Callable[..., Path], value: float) -> None:
    directory = copy()
    path = directory / "model.safetensors"
    tensors = _st.load_file(str(path))
    tensors["model.norm.weight"][17] = value
    _st.save_file(tensors, str(path))
    checkpoint = open_directory(directory)
    with pytest.raises(
        NonFiniteWeightError, match=f"model.norm.weight .* first {value} at flat index 17"
    ):
        checkpoint.read("model.norm.weight")
    with pytest.raises(NonFiniteWeightError):
        checkpoint.read_slice("model.norm.weight", 0, 10, 10)
    checkpoint.read_slice("model.norm.weight", 0, 20, 10)


def test_tensor_sets_that_differ_are_listed_in_one_error(copy: Callable[..., Path]) -> None:
    directory = copy()
    path = directory / "model.safetensors"
    tensors = _st.load_file(str(path))
    expected = {name: tuple(t.shape) for name, t in tensors.items()}
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    tensors["lm_head.weight"] = torch.ones(384, 96)
    _st.save_file(tensors, str(path))
    checkpoint = open_directory(directory)
    check_tensors(checkpoint, expected, tied=True, where="w")
    with pytest.raises(TensorMismatchError, match=r"lm_head.weight \[384, 96\] is one too many"):
        check_tensors(checkpoint, expected, tied=False, where="w")
    del expected["model.norm.weight"]
    expected["model.norm.bias"] = (96,)
    expected["model.embed_tokens.weight"] = (96, 384)
    with pytest.raises(TensorMismatchError) as caught:
        check_tensors(checkpoint, expected, tied=True, where="w")
    assert "3 differences" in caught.value.message
    assert "model.norm.bias [96] is missing" in caught.value.message
    assert "model.norm.weight [96] is one too many" in caught.value.message
    assert "model.embed_tokens.weight is [384, 96], the model's is [96, 384]" in (
        caught.value.message
    )


def test_a_quantized_checkpoint_is_refused(copy: Callable[..., Path]) -> None:
    directory = copy()
    checkpoints.edit_json(directory / "config.json", quantization_config={"quant_method": "gptq"})
    with pytest.raises(CheckpointUnsupportedError, match=r"quantized \(gptq\)"):
        open_directory(directory)


@pytest.mark.parametrize("text", ["{", "[1]", "\ufeff", '{"a": '])
def test_a_config_that_is_no_json_object(copy: Callable[..., Path], text: str) -> None:
    directory = copy()
    (directory / "config.json").write_text(text)
    with pytest.raises(ConfigError, match="JSON"):
        open_directory(directory)


def test_layers_that_only_guess_further_tokens_are_left_out(tiny_hf: TinyHf) -> None:
    """DeepSeek's checkpoints hold one behind the last: its tensors are not the model's."""
    checkpoint = open_directory(tiny_hf("deepseek"))
    found = {name: info.shape for name, info in checkpoint.tensors.items()}
    expected = {name: shape for name, shape in found.items() if ".layers.2." not in name}
    assert expected != found
    check_tensors(checkpoint, expected, tied=False, drafts=range(2, 3), where="test")
    with pytest.raises(TensorMismatchError, match=r"layers\.2\..* is one too many"):
        check_tensors(checkpoint, expected, tied=False, drafts=range(3, 4), where="test")


def test_dummy_weights_have_a_config_and_no_tensors(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    checkpoint = open_checkpoint(load(root / "recipes/llama-tiny-dummy.yaml"))
    assert checkpoint.config["hidden_size"] == 96
    assert dict(checkpoint.tensors) == {}
    assert checkpoint.tokenizer is None
    assert list(checkpoint.files) == ["llama-tiny.json"]
    with pytest.raises(KeyError):
        checkpoint.read("model.norm.weight")


def test_a_tensor_of_integers_is_refused(copy: Callable[..., Path]) -> None:
    directory = copy()
    path = directory / "model.safetensors"
    tensors = _st.load_file(str(path))
    expected = {name: tuple(t.shape) for name, t in tensors.items()}
    tensors["model.norm.weight"] = tensors["model.norm.weight"].view(torch.int32)
    _st.save_file(tensors, str(path))
    with pytest.raises(TensorMismatchError, match=r"model.norm.weight has the dtype int32"):
        check_tensors(open_directory(directory), expected, tied=True, where="w")
