"""References of the view ops: each returns an alias of its input's storage."""

from __future__ import annotations

from itertools import accumulate

from torch import Tensor


def split(x: Tensor, *, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Cut the last dim into consecutive parts of `sizes`; the parts keep x's row stride."""
    ends = accumulate(sizes)
    return tuple(x.narrow(-1, end - size, size) for end, size in zip(ends, sizes, strict=True))


def unflatten(x: Tensor, *, size: int) -> Tensor:
    """Cut the last dim into heads of `size`: x [T, h * size], to [T, h, size]."""
    return x.view(x.shape[0], x.shape[1] // size, size)


def flatten(x: Tensor) -> Tensor:
    """Join the last two dims: x [T, h, D], to [T, h * D]; the heads of a row must adjoin."""
    return x.view(x.shape[0], x.shape[1] * x.shape[2])


def narrow(x: Tensor, *, dim: int, start: int, size: int) -> Tensor:
    """`size` entries of `dim` from `start` on."""
    return x.narrow(dim, start, size)
