"""References of the ops that select rows, slices and coordinates."""

from __future__ import annotations

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
