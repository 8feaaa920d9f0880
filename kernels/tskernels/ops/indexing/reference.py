"""References of the ops that select rows, slices and coordinates, or put blocks in order."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows]: x [T, H], rows [S], to [S, H]."""
    return x[rows.long()]


def mask(x: Tensor, *, coordinate: int) -> Tensor:
    """Keep x on coordinate 0, give zeros elsewhere: a replicated value becomes a Partial one."""
    return x.clone() if coordinate == 0 else torch.zeros_like(x)


def slice_(x: Tensor, *, dim: int, start: int, size: int) -> Tensor:
    """A contiguous copy of `size` entries of `dim` from `start` on."""
    return x.narrow(dim, start, size).clone(memory_format=torch.contiguous_format)


def permute(x: Tensor, *, dim: int, sizes: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """View `dim` as `sizes` (outermost first), put those in `order`, flatten again: a copy."""
    dim %= x.dim()
    before, after = x.shape[:dim], x.shape[dim + 1 :]
    moved = [
        *range(dim),
        *(dim + i for i in order),
        *range(dim + len(sizes), x.dim() - 1 + len(sizes)),
    ]
    return x.reshape(*before, *sizes, *after).permute(moved).reshape(*before, prod(sizes), *after)
