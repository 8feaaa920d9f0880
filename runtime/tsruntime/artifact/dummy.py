"""Dummy weights: any shard of any tensor from (seed, name, global index), the same bits anywhere.

Each element hashes its 64-bit global index with two 32-bit keys by the `lowbias32` mixer (C.
Wellons, "Prospecting for Hash Functions", 2018), in int32 arithmetic that wraps alike on CPU and
GPU; the top 24 bits become a float exactly, so no rounding differs between devices.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

_BLOCK = 1 << 22
_LARGEST_FLOAT8 = 448.0
_COLUMNS = 128


def generate(
    seed: int,
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    *,
    dim: int = 0,
    start: int = 0,
    size: int | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Rows `start` to `start + size` along `dim` of the tensor `name` of global `shape`.

    Norm gains lie around 1, so that a gain left out shows; vectors in ±0.125; matrices have
    variance 1 / fan-in (the last dim). Matrices in float8 fill its range, and the scales of their
    blocks bring them to that variance, at the usual 128 columns a block.
    """
    size = shape[dim] - start if size is None else size
    local = (*shape[:dim], size, *shape[dim + 1 :])
    out = torch.empty(local, dtype=dtype, device=device)
    flat, keys = out.view(-1), _keys(seed, name)
    centre, spread = _distribution(name, shape, dtype)
    for first in range(0, flat.numel(), _BLOCK):
        count = min(_BLOCK, flat.numel() - first)
        index = torch.arange(first, first + count, dtype=torch.int64, device=device)
        unit = _unit(_global_index(index, shape, dim, start, size), keys)
        flat[first : first + count] = (unit * spread + centre).to(dtype)
    return out


def _keys(seed: int, name: str) -> tuple[int, int]:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    low = int.from_bytes(digest[:4], "little", signed=True)
    return low, int.from_bytes(digest[4:8], "little", signed=True)


def _distribution(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[float, float]:
    """Centre and spread."""
    if dtype == torch.float8_e4m3fn:
        return 0.0, _LARGEST_FLOAT8
    if name.endswith("weight_scale_inv"):
        centre = math.sqrt(3.0 / (_COLUMNS * shape[-1])) / _LARGEST_FLOAT8
        return centre, centre / 4
    if name.endswith("norm.weight"):
        return 1.0, 0.25
    if len(shape) == 1:
        return 0.0, 0.125
    return 0.0, math.sqrt(3.0 / shape[-1])


def _global_index(index: Tensor, shape: tuple[int, ...], dim: int, start: int, size: int) -> Tensor:
    """Row-major index in the whole tensor of local row-major indices."""
    inner = math.prod(shape[dim + 1 :])
    outer = index // (size * inner)
    within = index - outer * (size * inner)
    return outer * (shape[dim] * inner) + within + start * inner


def _unit(index: Tensor, keys: tuple[int, int]) -> Tensor:
    """Uniform float32 in [-1, 1), one for each int64 index."""
    low = index.to(torch.int32)
    high = (index >> 32).to(torch.int32)
    bits = _mix(_mix(low ^ keys[0]) + high * 0x2545F491 ^ keys[1])
    return (bits >> 8).to(torch.float32) * (1.0 / (1 << 23))


def _mix(x: Tensor) -> Tensor:
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return x ^ ((x >> 16) & 0xFFFF)
