"""What every rank of a group gets from a collective, computed over all their shards at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

import torch
from torch import Tensor


def all_reduce(shards: Sequence[Tensor], reduce: str = "sum") -> list[Tensor]:
    """Each rank's result of reducing `shards` (by coordinate) elementwise, in their order."""
    combine = torch.add if reduce == "sum" else torch.maximum
    total = fold(combine, shards)
    return [total.clone() for _ in shards]


def all_gather(shards: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Each rank's result of concatenating `shards` along `dim`."""
    return [torch.cat(tuple(shards), dim) for _ in shards]


def reduce_scatter(shards: Sequence[Tensor], dim: int, reduce: str = "sum") -> list[Tensor]:
    """Rank i's part i along `dim` of the reduced value."""
    total = all_reduce(shards, reduce)[0]
    return [part.contiguous() for part in total.chunk(len(shards), dim)]


def all_to_all(shards: Sequence[Tensor], split_dim: int, concat_dim: int) -> list[Tensor]:
    """Rank i's concatenation along `concat_dim` of every rank's part i along `split_dim`."""
    parts = [shard.chunk(len(shards), split_dim) for shard in shards]
    return [torch.cat([part[i] for part in parts], concat_dim) for i in range(len(shards))]
