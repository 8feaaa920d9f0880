"""Checkpoints in block-scaled e4m3 for tests, quantized by numpy from plain ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoints import edit_json
from numpy.typing import NDArray
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]
    save_file,  # pyright: ignore[reportUnknownVariableType]
)
from torch import Tensor

LARGEST = 448.0
"""Of e4m3 (OCP 8-bit Floating Point Specification 1.0, table 2)."""


def quantization(block: tuple[int, int], **changes: Any) -> dict[str, Any]:
    """The `quantization_config` of Qwen3's and DeepSeek's checkpoints."""
    return {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "modules_to_not_convert": ["lm_head"],
        "quant_method": "fp8",
        "weight_block_size": list(block),
        **changes,
    }


def save_quantized(
    source: Path, quantized: Path, dequantized: Path, block: tuple[int, int]
) -> None:
    """Copy `source` twice: its linears in e4m3 blocks, and what those stand for in float32."""
    for copy in (quantized, dequantized):
        shutil.copytree(source, copy)
    edit_json(quantized / "config.json", quantization_config=quantization(block))
    for file in sorted(source.glob("*.safetensors")):
        small: dict[str, Tensor] = {}
        wide: dict[str, Tensor] = {}
        for name, tensor in load_file(file).items():
            small[name] = wide[name] = tensor
            if name.endswith("_proj.weight"):
                values, scales = in_blocks(tensor, block)
                small[name], small[f"{name}_scale_inv"] = values, scales
                wide[name] = torch.tensor(spread(values, scales, block), dtype=torch.float32)
        save_file(small, quantized / file.name, {"format": "pt"})
        save_file(wide, dequantized / file.name, {"format": "pt"})
    for index in quantized.glob("*.index.json"):
        index.unlink()


def in_blocks(weight: Tensor, block: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """E4m3 values and the float32 scale of each block, whose largest value becomes 448."""
    rows, columns = (-(-n // b) for n, b in zip(weight.shape, block, strict=True))
    scales = torch.empty(rows, columns)
    values = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    for i in range(rows):
        for j in range(columns):
            down = slice(i * block[0], (i + 1) * block[0])
            across = slice(j * block[1], (j + 1) * block[1])
            part = weight[down, across]
            scales[i, j] = part.abs().max() / LARGEST
            values[down, across] = (part / scales[i, j]).to(torch.float8_e4m3fn)
    return values, scales


def spread(values: Tensor, scales: Tensor, block: tuple[int, int]) -> NDArray[np.floating[Any]]:
    """Values times the scales of their blocks."""
    every = np.kron(scales.double().numpy(), np.ones(block))[: values.shape[0], : values.shape[1]]
    return values.double().numpy() * every
