"""GPT-OSS checkpoints, fused or in MXFP4: experts by number, with transformers' own values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import safetensors.torch
import torch
from checkpoints import edit_json, load_reference, save_tiny_hf
from deployments import build, recipe
from their_tensors import saved_tensors
from torch import Tensor
from transformers.integrations import mxfp4 as theirs

from tscompile.checkpoint.gpt_oss import GptOssCheckpoint
from tscompile.checkpoint.huggingface import HuggingFaceCheckpoint
from tscompile.checkpoint.mxfp4 import dequantize
from tscompile.checkpoint.tensors import check_tensors
from tscompile.errors import CheckpointDamagedError, NonFiniteWeightError, TensorMismatchError
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.weights import WeightStore

_st = cast("Any", safetensors.torch)
convert = cast("Callable[..., Tensor]", cast("Any", theirs).convert_moe_packed_tensors)
Tensors = dict[str, Tensor]
EXPERTS, WIDTH, HIDDEN = 3, 32, 64


def random_bytes(*shape: int, low: int = 0, high: int = 256) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(low, high, shape, generator=generator, dtype=torch.uint8)


def test_every_byte_is_what_transformers_makes_of_it() -> None:
    blocks = torch.arange(256, dtype=torch.uint8).view(1, 8, 2, 16)
    scales = torch.tensor([0, 1, 100, 126, 127, 128, 200, 252], dtype=torch.uint8)
    scales = torch.stack((scales, scales.flip(0)), dim=-1).unsqueeze(0)
    want = convert(blocks, scales, dtype=torch.bfloat16).transpose(1, 2)
    assert torch.equal(dequantize(blocks, scales), want)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A tiny checkpoint whose experts are in MXFP4, as OpenAI's are."""
    sizes: dict[str, Any] = {
        "intermediate_size": WIDTH,
        "num_local_experts": EXPERTS,
        "hidden_size": HIDDEN,
    }
    saved = save_tiny_hf("gpt_oss", tmp_path / "c", dtype=torch.bfloat16, **sizes)
    edit(saved, pack)
    edit_json(saved / "config.json", quantization_config={"quant_method": "mxfp4"})
    return saved


def edit(directory: Path, change: Callable[[Tensors], object]) -> None:
    file = directory / "model.safetensors"
    tensors = cast("Tensors", _st.load_file(file))
    change(tensors)
    _st.save_file(tensors, file, metadata={"format": "pt"})


def pack(tensors: Tensors) -> None:
    """Random blocks and scales in place of the experts' matrices."""
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = tensors.pop(name).shape
        tensors[f"{name}_blocks"] = random_bytes(experts, rows, columns // 32, 16)
        tensors[f"{name}_scales"] = random_bytes(experts, rows, columns // 32, low=118, high=126)


def opened(directory: Path) -> GptOssCheckpoint:
    return GptOssCheckpoint(HuggingFaceCheckpoint(directory, None))


def test_experts_in_mxfp4_are_dequantized_one_by_one(packed: Path) -> None:
    checkpoint, raw = opened(packed), cast("Tensors", _st.load_file(packed / "model.safetensors"))
    stem = "model.layers.1.mlp.experts"
    fused, down = (
        convert(raw[f"{stem}.{name}_blocks"], raw[f"{stem}.{name}_scales"])
        for name in ("gate_up_proj", "down_proj")
    )
    for expert in range(EXPERTS):
        wanted = {"gate_proj": fused[expert, :, ::2].T, "up_proj": fused[expert, :, 1::2].T}
        for part, tensor in {**wanted, "down_proj": down[expert].T}.items():
            name = f"{stem}.{expert}.{part}.weight"
            assert torch.equal(checkpoint.read(name), tensor), name
            assert checkpoint.tensors[name].shape == tuple(tensor.shape)
            assert checkpoint.tensors[name].dtype == "bfloat16"
            half = checkpoint.read_slice(name, 1, 8, 16)
            assert torch.equal(half, tensor[:, 8:24])
        bias = raw[f"{stem}.gate_up_proj_bias"][expert]
        assert torch.equal(checkpoint.read(f"{stem}.{expert}.up_proj.bias"), bias[1::2])
        assert torch.equal(
            checkpoint.read(f"{stem}.{expert}.down_proj.bias"),
            raw[f"{stem}.down_proj_bias"][expert],
        )


def test_names_and_shapes_are_those_of_plain_checkpoints(packed: Path, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "intermediate_size": WIDTH,
        "num_local_experts": EXPERTS,
        "hidden_size": HIDDEN,
    }
    plain = save_tiny_hf("gpt_oss", tmp_path / "plain", **sizes)
    expected = {n: tuple(t.shape) for n, t in saved_tensors(load_reference(plain)).items()}
    check_tensors(opened(packed), expected, tied=False, where="w")
    check_tensors(opened(plain), expected, tied=False, where="w")
    fewer = expected | {"model.layers.0.mlp.experts.3.up_proj.weight": (WIDTH, HIDDEN)}
    with pytest.raises(TensorMismatchError, match=r"experts\.3\.up_proj\.weight .* is missing"):
        check_tensors(opened(plain), fewer, tied=False, where="w")


NAME = "model.layers.0.mlp.experts.down_proj"


@pytest.mark.parametrize(
    ("name", "other", "says"),
    [
        ("scales", None, "its scales are none"),
        ("blocks", None, "has no blocks beside it"),
        ("scales", random_bytes(3, 64, 2), r"uint8 \[3, 64, 2\]"),
        ("scales", torch.zeros(3, 64, 1), r"float32 \[3, 64, 1\]"),
        ("bias", torch.zeros(3), r"is \[3\], not of 2 dims"),
    ],
)
def test_damage_is_refused(packed: Path, name: str, other: Tensor | None, says: str) -> None:
    def damage(tensors: Tensors) -> None:
        del tensors[f"{NAME}_{name}"]
        if other is not None:
            tensors[f"{NAME}_{name}"] = other

    edit(packed, damage)
    with pytest.raises(CheckpointDamagedError, match=says):
        opened(packed)


def test_a_scale_that_is_no_number_is_refused(packed: Path) -> None:
    def spoil(tensors: Tensors) -> None:
        tensors[f"{NAME}_scales"][2, 5, 0] = 255

    edit(packed, spoil)
    checkpoint = opened(packed)
    checkpoint.read("model.layers.0.mlp.experts.1.down_proj.weight")
    with pytest.raises(NonFiniteWeightError, match=r"experts\.2\.down_proj\.weight holds 32"):
        checkpoint.read("model.layers.0.mlp.experts.2.down_proj.weight")


def test_an_artifact_holds_each_ranks_experts(packed: Path, tmp_path: Path) -> None:
    parallel = {"world": 3, "attn_tp": 3, "dense_tp": 1, "moe_ep": 3}
    artifact = build(tmp_path, recipe(packed, parallel=parallel, chat=False, dtype="float32"))
    plan, checkpoint = load_plan(artifact), opened(packed)
    name = "model.layers.1.mlp.experts.{}.up_proj.weight"
    for rank in range(3):
        held = WeightStore(artifact, plan, rank).tensor(name)
        assert torch.equal(held[0], checkpoint.read(name.format(rank)).float())
