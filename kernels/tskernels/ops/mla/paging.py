"""Rows of sequences in pages of latents, for every implementation of this family."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor


def integers(values: Tensor) -> list[int]:
    """The entries of a one-dimensional tensor."""
    return cast("list[int]", values.tolist())  # pyright: ignore[reportUnknownMemberType]


def gather(cache: Tensor, pages: Tensor, length: int) -> Tensor:
    """Latents [length, W] of one sequence from cache [pages, 1, 1, page_size, W].

    `pages` [P] int32 lists the sequence's; neither other pages nor the last one's tail are read.
    """
    page_size, width = cache.shape[3], cache.shape[4]
    used = pages[: -(-length // page_size)]
    return cache.index_select(0, used).view(len(used) * page_size, width)[:length]


def hidden(rows: int, length: int) -> Tensor:
    """Mask [rows, length] of the later positions that the last `rows` rows must not see."""
    return torch.ones(rows, length, dtype=torch.bool).triu(length - rows + 1)
