"""latent_write.torch and mla.torch: scatter, and matrix products either way of `absorbed`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.ops.mla.paging import gather, hidden, integers
from tskernels.signatures import floats, indices


def bind_latent_write(call: BoundCall) -> Kernel:
    """Scatter latent [T, R] and rope [T, 1, Dr] into the cache's slots."""
    latent, rope, cache, slots = (call.tensor(i) for i in range(4))
    page_size, rank = cache.shape[3], latent.shape[1]
    held, turned = cache[:, 0, 0, :, :rank], cache[:, 0, 0, :, rank:]
    key = rope[:, 0]

    def run() -> None:
        pages = torch.div(slots, page_size, rounding_mode="floor")
        offsets = slots - pages * page_size
        held[pages, offsets] = latent
        turned[pages, offsets] = key

    return run


def bind_mla(call: BoundCall) -> Kernel:
    """Attention to the latents themselves, or to the keys and values made of them."""
    return _bind_absorbed(call) if call.attributes["absorbed"] else _bind_expanded(call)


def _bind_expanded(call: BoundCall) -> Kernel:
    """Every sequence's keys [h, L, Dn + Dr] and values [h, L, Dv], then plain attention."""
    query, rope, cache, kv_b = (call.tensor(i) for i in range(4))
    y, scale, rank = call.outputs[0], call.number("scale"), kv_b.shape[1]
    nope, wide = query.shape[2], _wide(query)
    maker = kv_b.view(query.shape[1], -1, rank)

    def run() -> None:
        queries = torch.cat((query, rope), dim=-1).transpose(0, 1).to(wide)
        for first, last, latents in _sequences(call, cache):
            made = torch.matmul(latents[:, :rank], maker.transpose(1, 2)).to(wide)
            shared = latents[:, rank:].to(wide).expand(made.shape[0], -1, -1)
            keys = torch.cat((made[..., :nope], shared), dim=-1)
            weights = _weights(queries[:, first:last], keys, scale)
            y[first:last] = (weights @ made[..., nope:]).transpose(0, 1)

    return run


def _bind_absorbed(call: BoundCall) -> Kernel:
    """Queries taken into the latents' space [h, T, R + Dr]; what they gather, out of it."""
    query, rope, cache, kv_b = (call.tensor(i) for i in range(4))
    y, scale, rank = call.outputs[0], call.number("scale"), kv_b.shape[1]
    nope, wide = query.shape[2], _wide(query)
    maker = kv_b.view(query.shape[1], -1, rank)
    into, out_of = maker[:, :nope], maker[:, nope:].transpose(1, 2)

    def run() -> None:
        inside = torch.matmul(query.transpose(0, 1), into)
        queries = torch.cat((inside, rope.transpose(0, 1)), dim=-1).to(wide)
        for first, last, latents in _sequences(call, cache):
            keys = latents.to(wide)
            weights = _weights(queries[:, first:last], keys, scale)
            found = (weights @ keys[:, :rank]).to(query.dtype)
            y[first:last] = torch.matmul(found, out_of).transpose(0, 1)

    return run


def _wide(query: Tensor) -> torch.dtype:
    return torch.promote_types(query.dtype, torch.float32)


def _sequences(call: BoundCall, cache: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """First row, the row behind the last, and latents of each sequence that has new rows."""
    table, lengths, starts = (call.tensor(i) for i in range(4, 7))
    bounds = integers(starts)
    for s, length in enumerate(integers(lengths)):
        if bounds[s] < bounds[s + 1]:
            yield bounds[s], bounds[s + 1], gather(cache, table[s], length)


def _weights(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """Softmax [h, t, L] of queries [h, t, W], the last rows of keys [L, W] or [h, L, W]."""
    scores = torch.matmul(queries, keys.transpose(-1, -2)) * scale
    later = hidden(scores.shape[1], scores.shape[2])
    return scores.masked_fill_(later, float("-inf")).softmax(dim=-1)


_INDICES = indices("block_table", "seq_lens", "query_starts")

SPECS = (
    KernelSpec(
        "latent_write",
        "torch",
        bind_latent_write,
        PORTABLE,
        {**floats("latent", "rope", "cache"), **indices("slot_mapping")},
    ),
    KernelSpec(
        "mla",
        "torch",
        bind_mla,
        PORTABLE,
        {**floats("query", "query_rope", "cache", "kv_b"), **_INDICES},
    ),
)
