"""How native kernels see tensors: addresses, strides of leading dims, and contiguity checks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Grid(NamedTuple):
    """A tensor of 1 to 3 dims as [rows, heads, width]; strides are of rows and heads."""

    address: int
    strides: tuple[int, int]
    extent: tuple[int, int, int]


def grid(x: Tensor) -> Grid:
    """See x as a grid; its last dim must be contiguous. (No view is made: loading binds many.)"""
    shape, steps = x.shape, x.stride()
    if steps[-1] != 1 and shape[-1] > 1:
        raise ValueError(f"the last dim has stride {steps[-1]}, native kernels take 1")
    if len(shape) == 3:
        return Grid(x.data_ptr(), (steps[0], steps[1]), (shape[0], shape[1], shape[2]))
    if len(shape) == 2:
        return Grid(x.data_ptr(), (steps[0], 0), (shape[0], 1, shape[1]))
    return Grid(x.data_ptr(), (0, 0), (1, 1, shape[0]))


def cache_extent(cache: Tensor) -> tuple[int, int, int, int]:
    """Pages, heads, page size and width of a contiguous cache [pages, 2, h, page_size, D]."""
    if not cache.is_contiguous():
        raise ValueError("native kernels take a contiguous cache")
    return cache.shape[0], cache.shape[2], cache.shape[3], cache.shape[4]


def index_address(x: Tensor) -> int:
    """Address of an array of indices, which must be contiguous int32."""
    if x.dtype != torch.int32 or not x.is_contiguous():
        raise ValueError(f"native kernels take contiguous int32 indices, not {x.dtype}")
    return x.data_ptr()
