"""Checkpoints in block-scaled e4m3 against transformers with what they stand for, and refusals."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import TinyHf, load_reference
from deployments import build, recipe, write_recipe
from fp8_checkpoints import save_quantized
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]
    save_file,  # pyright: ignore[reportUnknownVariableType]
)
from teacher_forcing import measure

from tscompile.deployment import compile_recipe
from tscompile.errors import NonFiniteWeightError, TensorMismatchError
from tscompile.recipe import load

LIMIT = 1e-4


@pytest.mark.parametrize("world", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_position_agrees(world: int, tiny_hf: TinyHf, tmp_path: Path) -> None:
    quantized, dequantized = tmp_path / "fp8", tmp_path / "wide"
    save_quantized(tiny_hf("qwen3"), quantized, dequantized, (16, 16))
    sections = {"chat": False, "dtype": "float32", "buckets": {"all_logits": [[64, 4]]}}
    artifact = build(tmp_path, recipe(quantized, world=world, **sections))
    draw = random.Random(1)
    prompts = [[draw.randrange(3, 300) for _ in range(n)] for n in (1, 5, 33, 100)]
    model, plain = load_reference(dequantized), load_reference(tiny_hf("qwen3"))
    moved = 0.0
    for index, prompt in enumerate(prompts):
        with torch.no_grad():
            logits = model(torch.tensor([prompt])).logits[0]
            other = plain(torch.tensor([prompt])).logits[0]
        np.save(tmp_path / f"{index}.npy", logits.numpy())
        moved = max(moved, float((logits - other).abs().max() / logits.abs().max()))
    (found,) = measure(artifact, [prompts], [tmp_path])
    assert max(max(errors) for errors in found.values()) < LIMIT
    assert moved > 100 * LIMIT  # quantizing shows


def spoiled(folder: Path, tiny_hf: TinyHf, name: str, tensor: torch.Tensor | None) -> Path:
    """A recipe for a quantized checkpoint in which one tensor is another one, or missing."""
    quantized = folder / "fp8"
    save_quantized(tiny_hf("qwen3"), quantized, folder / "wide", (16, 16))
    (file,) = quantized.glob("*.safetensors")
    tensors = load_file(file)
    assert name in tensors
    del tensors[name]
    save_file(tensors if tensor is None else tensors | {name: tensor}, file)
    return write_recipe(folder, recipe(quantized, chat=False, dtype="float32"))


UP = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        (f"{UP}_scale_inv", None, f"{UP}_scale_inv [9, 6] is missing"),
        (UP, torch.zeros(144, 96), f"{UP} has the dtype float32, not one of float8_e4m3fn"),
        (f"{UP}_scale_inv", torch.ones(9, 5), f"{UP}_scale_inv is [9, 5], the model's is [9, 6]"),
        (
            "lm_head.weight",
            torch.ones(384, 96).to(torch.float8_e4m3fn),
            "lm_head.weight has the dtype float8_e4m3fn, not one of float32",
        ),
    ],
)
def test_tensors_that_are_not_the_models_are_refused(
    name: str, tensor: torch.Tensor | None, said: str, tiny_hf: TinyHf, tmp_path: Path
) -> None:
    path = spoiled(tmp_path, tiny_hf, name, tensor)
    with pytest.raises(TensorMismatchError) as refusal:
        compile_recipe(load(path, ()))
    assert said in refusal.value.message


def test_a_weight_that_is_no_number_is_refused(tiny_hf: TinyHf, tmp_path: Path) -> None:
    weight = torch.ones(144, 96).to(torch.float8_e4m3fn)
    weight.view(torch.uint8)[5, 7] = 0x7F
    path = spoiled(tmp_path, tiny_hf, UP, weight)
    with pytest.raises(NonFiniteWeightError) as refusal:
        compile_recipe(load(path, ())).checkpoint.read(UP)
    assert f"{UP} holds 1 values that are not finite, first nan at flat index 487" in str(
        refusal.value.message
    )
