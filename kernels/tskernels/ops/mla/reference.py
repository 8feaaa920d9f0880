"""References of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

A layer's cache is [pages, 1, 1, page_size, R + Dr]: for each token R numbers from which every
head's keys and values follow, then one rotary key of Dr that all heads share.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tskernels.ops.mla.paging import gather, hidden, integers


def latent_write(latent: Tensor, rope: Tensor, cache: Tensor, slot_mapping: Tensor) -> Tensor:
    """Store row t's latent and rotary key at slot_mapping[t]; mutates `cache` and returns it.

    latent [T, R] and rope [T, 1, Dr], possibly strided; cache [pages, 1, 1, page_size, R + Dr];
    slot_mapping [T] holds page * page_size + offset.
    """
    page_size, rank = cache.shape[3], latent.shape[1]
    slots = slot_mapping.long()
    pages, offsets = slots // page_size, slots % page_size
    cache[pages, 0, 0, offsets, :rank] = latent
    cache[pages, 0, 0, offsets, rank:] = rope[:, 0]
    return cache


def mla(
    query: Tensor,
    query_rope: Tensor,
    cache: Tensor,
    kv_b: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_starts: Tensor,
    *,
    scale: float,
    absorbed: bool = False,
) -> Tensor:
    """Causal attention of new rows over the paged latents, which already hold theirs.

    query [T, h, Dn] is the part of each query without position, query_rope [T, h, Dr] the rotated
    one; cache [pages, 1, 1, page_size, R + Dr]; kv_b [h * (Dn + Dv), R] holds for each head the
    rows that make its key, then those that make its value, of a latent; block_table [S, P],
    seq_lens [S], query_starts [S + 1] as in `attention`. To [T, h, Dv]; rows of no sequence are
    zero here and may be anything elsewhere. Softmax in float32 (float64 for float64 inputs).

    `absorbed` says how, not what: keys and values of every head are made from the latents, or
    (absorbed) the query is taken into the space of the latents, through the key rows of kv_b, and
    what it gathers there out of it, through the value rows. This is the first way, always.
    """
    rank, rows = kv_b.shape[1], kv_b.shape[0] // query.shape[1]
    wide = torch.promote_types(query.dtype, torch.float32)
    out = query.new_zeros(*query.shape[:2], rows - query.shape[2])
    starts = integers(query_starts)
    for s, length in enumerate(integers(seq_lens)):
        first, last = starts[s], starts[s + 1]
        if first == last:
            continue
        known = gather(cache, block_table[s], length).to(wide)
        both = (known[:, :rank] @ kv_b.to(wide).T).view(length, query.shape[1], rows)
        keys, values = both[..., : query.shape[2]], both[..., query.shape[2] :]
        scores = torch.einsum("thd,shd->hts", query[first:last].to(wide), keys)
        scores += torch.einsum("thd,sd->hts", query_rope[first:last].to(wide), known[:, rank:])
        later = hidden(last - first, length)
        weights = (scores * scale).masked_fill(later, float("-inf")).softmax(dim=-1)
        out[first:last] = torch.einsum("hts,shd->thd", weights, values).to(query.dtype)
    return out
