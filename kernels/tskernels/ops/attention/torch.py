"""kv_write.torch and attention.torch: scatter, gather and scaled_dot_product_attention."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats, indices


def bind_kv_write(call: BoundCall) -> Kernel:
    """Scatter key and value [T, h, D] into the cache's slots."""
    key, value, cache, slots = (call.tensor(i) for i in range(4))
    keys, values, page_size = cache[:, 0], cache[:, 1], cache.shape[3]

    def run() -> None:
        pages = torch.div(slots, page_size, rounding_mode="floor")
        offsets = slots - pages * page_size
        keys[pages, :, offsets] = key
        values[pages, :, offsets] = value

    return run


def bind_attention(call: BoundCall) -> Kernel:
    """One scaled_dot_product_attention a sequence, over its keys gathered from the pages."""
    query, cache, table, lengths, starts = (call.tensor(i) for i in range(5))
    y, sinks = call.outputs[0], call.inputs[5]
    scale = call.number("scale")
    window = call.integer("window")

    def run() -> None:
        bounds = _integers(starts)
        for s, length in enumerate(_integers(lengths)):
            first, last = bounds[s], bounds[s + 1]
            if first == last:
                continue
            keys, values = _gather(cache, table[s], length)
            visible = _visible(last - first, length, window)
            rows = query[first:last].transpose(0, 1).unsqueeze(0)
            if sinks is not None:
                heads = _with_sinks(rows, keys, values, sinks, visible, scale)
            else:
                heads = functional.scaled_dot_product_attention(
                    rows, keys, values, attn_mask=visible, scale=scale, enable_gqa=True
                )
            y[first:last] = heads.squeeze(0).transpose(0, 1)

    return run


def _with_sinks(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    sinks: Tensor,
    visible: Tensor | None,
    scale: float,
) -> Tensor:
    """Attention [1, hq, n, D] with one more score a query head, which has no value.

    The sink is a further key, of score 0 by the product and of the sink's size by the mask, with a
    value of zeros, so that the library's own kernel does the rest.
    """
    rows, length = query.shape[2], keys.shape[2]
    bias = query.new_zeros(query.shape[1], rows, length + 1)
    if visible is not None:
        bias[:, :, :length].masked_fill_(~visible, float("-inf"))
    bias[:, :, length] = sinks.unsqueeze(1)
    blank = keys.new_zeros(1, keys.shape[1], 1, keys.shape[3])
    return functional.scaled_dot_product_attention(
        query,
        torch.cat((keys, blank), dim=2),
        torch.cat((values, blank), dim=2),
        attn_mask=bias,
        scale=scale,
        enable_gqa=True,
    )


def _integers(values: Tensor) -> list[int]:
    return cast("list[int]", values.tolist())  # pyright: ignore[reportUnknownMemberType]


def _gather(cache: Tensor, pages: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Keys and values [1, h, length, D] of one sequence; the last page's tail is left out."""
    _, _, heads, page_size, width = cache.shape
    used = -(-length // page_size)
    held = cache.index_select(0, pages[:used]).permute(1, 2, 0, 3, 4)
    flat = held.reshape(2, 1, heads, used * page_size, width)[:, :, :, :length]
    return flat[0], flat[1]


def _visible(rows: int, length: int, window: int) -> Tensor | None:
    """Mask [rows, length] of the positions that each row sees; None where that is all."""
    if rows == 1 and not 0 < window < length:
        return None
    visible = torch.ones(rows, length, dtype=torch.bool).tril(length - rows)
    return visible.triu(length - rows - window + 1) if window > 0 else visible


SPECS = (
    KernelSpec(
        "kv_write",
        "torch",
        bind_kv_write,
        PORTABLE,
        {**floats("key", "value", "cache"), **indices("slot_mapping")},
    ),
    KernelSpec(
        "attention",
        "torch",
        bind_attention,
        PORTABLE,
        {**floats("query", "cache", "sinks"), **indices("block_table", "seq_lens", "query_starts")},
    ),
)
