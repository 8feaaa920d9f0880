"""References of paged attention and of the cache write that feeds it.

A layer's cache is [pages, 2, h, page_size, D]: keys at index 0 of the second dim, values at 1.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor


def kv_write(key: Tensor, value: Tensor, cache: Tensor, slot_mapping: Tensor) -> Tensor:
    """Store row t's key and value at slot_mapping[t]; mutates `cache` and returns it.

    key, value [T, h, D], possibly strided; cache [pages, 2, h, page_size, D];
    slot_mapping [T] holds page * page_size + offset.
    """
    page_size = cache.shape[3]
    slots = slot_mapping.long()
    pages, offsets = slots // page_size, slots % page_size
    cache[pages, 0, :, offsets] = key
    cache[pages, 1, :, offsets] = value
    return cache


def attention(
    query: Tensor,
    cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_starts: Tensor,
    sinks: Tensor | None = None,
    *,
    scale: float,
    window: int = 0,
) -> Tensor:
    """Causal attention of new rows over the paged cache, which already holds their keys.

    query [T, hq, D]; cache [pages, 2, hkv, page_size, D]; block_table [S, P] pages of each
    sequence; seq_lens [S] tokens in the cache, new rows included; query_starts [S + 1], so that
    sequence s owns the rows query_starts[s] to query_starts[s + 1] - 1, the last of which is at
    position seq_lens[s] - 1. Query head h reads key head h // (hq / hkv). With window > 0 a row
    sees the last `window` positions up to its own. A head's entry of `sinks` [hq] stands beside its
    scores in the softmax and takes its share of the weight, with no value (arXiv 2309.17453, as in
    GPT-OSS). To [T, hq, D]; rows of no sequence are zero
    here and may be anything elsewhere. Softmax in float32 (float64 for float64 inputs).
    """
    out = torch.zeros_like(query, memory_format=torch.contiguous_format)
    starts = _integers(query_starts)
    for s, length in enumerate(_integers(seq_lens)):
        first, last = starts[s], starts[s + 1]
        if first < last:
            keys, values = _gather(cache, block_table[s], length)
            rows = query[first:last]
            out[first:last] = _attend(rows, keys, values, sinks, scale=scale, window=window)
    return out


def _integers(values: Tensor) -> list[int]:
    return cast("list[int]", values.tolist())  # pyright: ignore[reportUnknownMemberType]


def _gather(cache: Tensor, pages: Tensor, length: int) -> tuple[Tensor, Tensor]:
    positions = torch.arange(length, device=cache.device)
    page_size = cache.shape[3]
    rows = pages.long()[positions // page_size]
    offsets = positions % page_size
    return cache[rows, 0, :, offsets], cache[rows, 1, :, offsets]


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    sinks: Tensor | None,
    *,
    scale: float,
    window: int,
) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    group = query.shape[1] // keys.shape[1]
    q = query.to(wide).transpose(0, 1)
    k = keys.to(wide).repeat_interleave(group, dim=1).permute(1, 2, 0)
    v = values.to(wide).repeat_interleave(group, dim=1).transpose(0, 1)
    length = keys.shape[0]
    own = torch.arange(length - query.shape[0], length, device=query.device).unsqueeze(1)
    seen = torch.arange(length, device=query.device).unsqueeze(0)
    hidden = seen > own
    if window > 0:
        hidden |= seen <= own - window
    scores = ((q @ k) * scale).masked_fill(hidden, float("-inf"))
    if sinks is None:
        weights = scores.softmax(dim=-1)
    else:
        beside = sinks.to(wide).view(-1, 1, 1).expand(-1, query.shape[0], 1)
        weights = torch.cat((scores, beside), dim=-1).softmax(dim=-1)[:, :, :-1]
    return (weights @ v).transpose(0, 1).to(query.dtype)
