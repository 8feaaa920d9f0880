"""How native kernels see tensors: addresses, strides of leading dims, and contiguity checks."""

from __future__ import annotations

import torch
from torch import Tensor


def address(x: Tensor | None) -> int:
    """Address of the first element; 0 for an absent input."""
    return 0 if x is None else x.data_ptr()


def grid(x: Tensor) -> Tensor:
    """View x (1 to 3 dims) as [rows, heads, width]; its last dim must be contiguous."""
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        raise ValueError(f"the last dim has stride {x.stride(-1)}, native kernels take 1")
    if x.dim() == 3:
        return x
    return x.unsqueeze(1) if x.dim() == 2 else x.view(1, 1, x.shape[0])


def strides(x: Tensor) -> tuple[int, int]:
    """Strides of the rows and heads of a grid, in elements."""
    return x.stride(0), x.stride(1)


def extent(x: Tensor) -> tuple[int, int, int]:
    """Rows, heads and width of a grid."""
    return x.shape[0], x.shape[1], x.shape[2]


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
