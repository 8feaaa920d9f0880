"""References of the collectives, as one rank calls them: with one rank, each is a copy.

What more ranks would get is in `tskernels.ops.collectives.group`, over all shards at once.
"""

from __future__ import annotations

import torch
from torch import Tensor


def all_reduce(x: Tensor, *, axes: tuple[str, ...], size: int, reduce: str = "sum") -> Tensor:
    """The elementwise `reduce` ("sum" or "max") of x over the `size` ranks along `axes`."""
    return _alone("all_reduce", x, axes, size)


def all_gather(x: Tensor, *, axes: tuple[str, ...], size: int, dim: int) -> Tensor:
    """The shards of all ranks along `axes`, concatenated along `dim` by coordinate."""
    return _alone("all_gather", x, axes, size)


def reduce_scatter(
    x: Tensor, *, axes: tuple[str, ...], size: int, dim: int, reduce: str = "sum"
) -> Tensor:
    """Part of the elementwise `reduce` of x over `axes`: this coordinate's, along `dim`."""
    return _alone("reduce_scatter", x, axes, size)


def all_to_all(
    x: Tensor, *, axes: tuple[str, ...], size: int, split_dim: int, concat_dim: int
) -> Tensor:
    """Cut x along `split_dim`, send part i to coordinate i, concatenate along `concat_dim`."""
    return _alone("all_to_all", x, axes, size)


def _alone(op: str, x: Tensor, axes: tuple[str, ...], size: int) -> Tensor:
    if size != 1:
        raise RuntimeError(f"{op} over {axes} needs {size} ranks; a single process has one")
    return x.clone(memory_format=torch.contiguous_format)
