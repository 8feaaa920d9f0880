# pyright: basic
"""Norms of heads, their rotation and their place in the cache, some heads of a row a block."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import start_dependents, wait_for_inputs


@triton.jit
def _scaled(part, gain, factor):
    """A part of a head times the norm's factor, rounded, and times its gain, rounded."""
    normed = (part * factor).to(gain.dtype).to(tl.float32)
    return (normed * gain.to(tl.float32)).to(gain.dtype).to(tl.float32)


@triton.jit
def rope_kv_write(
    query,
    key,
    value,
    query_weight,
    key_weight,
    table,
    cache,
    slots,
    y,
    normed: tl.constexpr,
    eps: tl.constexpr,
    interleaved: tl.constexpr,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    width: tl.constexpr,
    turned: tl.constexpr,
    page_size: tl.constexpr,
    query_row: tl.constexpr,
    query_head: tl.constexpr,
    key_row: tl.constexpr,
    key_head: tl.constexpr,
    value_row: tl.constexpr,
    value_head: tl.constexpr,
    table_row: tl.constexpr,
    y_row: tl.constexpr,
    y_head: tl.constexpr,
    block_h: tl.constexpr,
    block: tl.constexpr,
    tail: tl.constexpr,
    whole: tl.constexpr,
    early: tl.constexpr,
):
    """Heads of the query go to y; those of key and value to the row's slot of the cache.

    `block_h` of them a block, all of one kind. The weights are read where `normed`; they and the
    slots lie there before the kernels that come before this one have ended.
    """
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    kind = y.dtype.element_ty
    slot = tl.load(slots + row).to(tl.int64)
    page, offset = slot // page_size, slot % page_size
    tiles: tl.constexpr = (heads + block_h - 1) // block_h
    is_query = tile < tiles
    place = cache + (page * 2 * kv_heads * page_size + offset) * width
    source = key + row * key_row
    target = place
    gains = key_weight
    if is_query:
        source = query + row * query_row
        target = y + row * y_row
        gains = query_weight
    head = tl.where(is_query, tile, tile - tiles) * block_h + tl.arange(0, block_h)
    mine = (head < tl.where(is_query, heads, kv_heads))[:, None]
    source += (head * tl.where(is_query, query_head, key_head))[:, None]
    target += (head * tl.where(is_query, y_head, page_size * width))[:, None]
    half: tl.constexpr = turned // 2
    pair = tl.arange(0, block)
    inside = (pair < half)[None, :]
    left = (pair * 2 if interleaved else pair)[None, :]
    right = left + 1 if interleaved else left + half
    angles = table + row * table_row + pair[None, :]
    column = (turned + tl.arange(0, tail if tail > 0 else 1))[None, :]
    if normed:
        left_gain = tl.load(gains + left, mask=inside, other=0.0)
        right_gain = tl.load(gains + right, mask=inside, other=0.0)
        if tail > 0:
            tail_gain = tl.load(gains + column, mask=column < width, other=0.0)
    wait_for_inputs(early)
    cos = tl.load(angles, mask=inside, other=0.0)
    sin = tl.load(angles + half, mask=inside, other=0.0)
    held = mine & inside
    first = tl.load(source + left, mask=held, other=0.0).to(tl.float32)
    second = tl.load(source + right, mask=held, other=0.0).to(tl.float32)
    if normed:
        squares = tl.sum(first * first + second * second, 1)
    if tail > 0:
        within = mine & (column < width)
        rest = tl.load(source + column, mask=within, other=0.0).to(tl.float32)
        if normed:
            squares += tl.sum(rest * rest, 1)
    if normed:
        factor = tl.rsqrt(squares / width + eps)[:, None]
        first = _scaled(first, left_gain, factor)
        second = _scaled(second, right_gain, factor)
        if tail > 0:
            rest = _scaled(rest, tail_gain, factor)
    tl.store(target + left, (first * cos - second * sin).to(kind), mask=held)
    tl.store(target + right, (second * cos + first * sin).to(kind), mask=held)
    if tail > 0:
        tl.store(target + column, rest.to(kind), mask=within)
    if not is_query:
        all_of = tl.arange(0, whole)[None, :]
        kept = mine & (all_of < width)
        values = value + row * value_row + head[:, None] * value_head + all_of
        beyond = place + ((kv_heads + head) * page_size * width)[:, None] + all_of
        tl.store(beyond, tl.load(values, mask=kept, other=0.0), mask=kept)
