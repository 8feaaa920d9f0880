# pyright: basic
"""Paged attention: decode split over the keys, prefill by tiles of rows; and the cache write.

Scores are kept in float32 as powers of two, whatever the type of query and cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import is_last, prefetch, start_dependents, wait_for_inputs

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def kv_write(
    key,
    value,
    cache,
    slots,
    heads: tl.constexpr,
    width: tl.constexpr,
    page_size: tl.constexpr,
    key_row: tl.constexpr,
    key_head: tl.constexpr,
    value_row: tl.constexpr,
    value_head: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, block)
    inside = column < width
    start_dependents(early)
    wait_for_inputs(early)
    slot = tl.load(slots + row).to(tl.int64)
    page, offset = slot // page_size, slot % page_size
    place = cache + ((page * 2 * heads + head) * page_size + offset) * width + column
    held = tl.load(key + row * key_row + head * key_head + column, mask=inside, other=0.0)
    tl.store(place, held, mask=inside)
    held = tl.load(value + row * value_row + head * value_head + column, mask=inside, other=0.0)
    tl.store(place + heads * page_size * width, held, mask=inside)


@triton.jit
def _keys_at(table, first, t, end, kv_head, kv_heads, page_size, width, in_page: tl.constexpr):
    """Offsets in the cache of the keys of one sequence at first + t, below `end`.

    Where they are known to lie `in_page`, one look at the table finds them all. Where few blocks
    run, it pays to look for each: the compiler fetches ahead by such looks, and not by one.
    """
    if in_page:
        page = tl.load(table + first // page_size, mask=first < end, other=0).to(tl.int64)
        place = (page * 2 * kv_heads + kv_head) * page_size + first % page_size
        return (place + t) * width
    else:
        position = first + t
        seen = position < end
        page = tl.load(table + position // page_size, mask=seen, other=0).to(tl.int64)
        return ((page * 2 * kv_heads + kv_head) * page_size + position % page_size) * width


@triton.jit
def _absorb(q, keys, values, visible, best, weight, total, factor, masked: tl.constexpr):
    """Take some keys into the running maximum, weight and sum of each row of q.

    Scores times `factor` are powers of two; `visible` [rows, keys] counts where `masked`.
    """
    scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * factor
    if masked:
        scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    base = higher
    if masked:
        base = tl.where(higher == float("-inf"), 0.0, higher)
    powers = tl.exp2(scores - base[:, None])
    fade = tl.exp2(best - base)
    weight = weight * fade + tl.sum(powers, 1)
    total = total * fade[:, None]
    total = tl.dot(powers.to(values.dtype), values, total, input_precision="ieee")
    return higher, weight, total


@triton.jit
def _deliver(target, mine, best, weight, total, sinks, head, kept, has_sinks):
    """Divide by the weight of all keys, and of the sinks beside them, and store."""
    if has_sinks:
        sink = tl.load(sinks + head, mask=kept, other=0.0).to(tl.float32) * LOG2_E
        higher = tl.maximum(best, sink)
        fade = tl.exp2(best - higher)
        weight = weight * fade + tl.exp2(sink - higher)
        total = total * fade[:, None]
    weight = tl.where(weight > 0.0, weight, 1.0)
    tl.store(target, (total / weight[:, None]).to(target.dtype.element_ty), mask=mine)


@triton.jit
def decode(
    query,
    cache,
    tables,
    lengths,
    starts,
    sinks,
    y,
    partial,
    counters,
    scale: tl.constexpr,
    window: tl.constexpr,
    has_sinks: tl.constexpr,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    page_size: tl.constexpr,
    max_pages: tl.constexpr,
    query_row: tl.constexpr,
    query_head: tl.constexpr,
    y_row: tl.constexpr,
    y_head: tl.constexpr,
    splits: tl.constexpr,
    block_g: tl.constexpr,
    block_c: tl.constexpr,
    block_t: tl.constexpr,
    block_d: tl.constexpr,
    stages: tl.constexpr,
    lines: tl.constexpr,
    early: tl.constexpr,
):
    """One row of each sequence that has one, the query heads of one key head, a share of its keys.

    Every share leaves its weighted sum, maximum and weight; the last one to end joins them.
    What a program is given lies there before its first kernel begins, and so do the keys of the
    tokens before: their lines are fetched before the kernels that come before this one have ended.
    """
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tl.load(starts + sequence)
    length = tl.load(lengths + sequence)
    if tl.load(starts + sequence + 1) != row + 1:
        length = 0
    oldest = 0
    if window > 0:
        oldest = tl.maximum(length - window, 0)
    low = oldest // block_t * block_t
    blocks = (length - low + block_t - 1) // block_t
    share = (blocks + splits - 1) // splits * block_t
    begin = low + split * share
    end = tl.minimum(begin + share, length)
    t = tl.arange(0, block_t)
    table = tables + sequence.to(tl.int64) * max_pages
    plane: tl.constexpr = kv_heads * page_size * width
    if early:  # noqa: SIM102 (known when compiled, and then the rest is left out)
        if begin < end:
            line = tl.arange(0, lines) * (128 // query.dtype.element_ty.itemsize)
            at = _keys_at(table, begin, t, end, kv_head, kv_heads, page_size, width, False)
            ahead = cache + at[:, None] + tl.minimum(line, width - 1)[None, :]
            prefetch(ahead)
            prefetch(ahead + plane)
    wait_for_inputs(early)
    start_dependents(early)  # not before: they ask for weights, which would come before the keys
    if begin < end:
        g = tl.arange(0, block_g)
        d = tl.arange(0, block_d)
        mine = (g < group)[:, None] & (d < width)[None, :]
        head = kv_head * group + g
        wide_row = row.to(tl.int64)
        q = tl.load(
            query + wide_row * query_row + head[:, None] * query_head + d[None, :],
            mask=mine,
            other=0.0,
        )
        best = tl.full((block_g,), float("-inf"), tl.float32)
        weight = tl.zeros((block_g,), tl.float32)
        total = tl.zeros((block_g, block_d), tl.float32)
        for first in tl.range(begin, end, block_t, num_stages=stages):
            position = first + t
            seen = (position >= oldest) & (position < end)
            at = _keys_at(table, first, t, end, kv_head, kv_heads, page_size, width, False)
            inside = seen[:, None] & (d < width)[None, :]
            keys = tl.load(cache + at[:, None] + d[None, :], mask=inside, other=0.0)
            values = tl.load(cache + plane + at[:, None] + d[None, :], mask=inside, other=0.0)
            best, weight, total = _absorb(
                q, keys, values, seen[None, :], best, weight, total, scale * LOG2_E, True
            )
        target = y + wide_row * y_row + head[:, None] * y_head + d[None, :]
        shares = (length - low + share - 1) // share
        if splits == 1:  # noqa: SIM114 (known when compiled, and then the rest is left out)
            _deliver(target, mine, best, weight, total, sinks, head, g < group, has_sinks)
        elif shares == 1:
            _deliver(target, mine, best, weight, total, sinks, head, g < group, has_sinks)
        else:
            place = (sequence * kv_heads + kv_head) * splits
            sums = partial + tl.num_programs(0) * kv_heads * splits * 2 * block_c
            both = partial + (place + split) * 2 * block_c + g
            tl.store(both, best, mask=g < block_c)
            tl.store(both + block_c, weight, mask=g < block_c)
            inner = (place + split) * block_c * block_d + g[:, None] * block_d + d[None, :]
            tl.store(sums + inner, total, mask=(g < block_c)[:, None])
            if is_last(counters + sequence * kv_heads + kv_head, shares):
                s = tl.arange(0, splits)
                c = tl.arange(0, block_c)
                used = s < shares
                pair = partial + (place + s)[:, None] * 2 * block_c + c[None, :]
                tops = tl.load(pair, used[:, None], float("-inf"), cache_modifier=".cg")
                weights = tl.load(pair + block_c, used[:, None], 0.0, cache_modifier=".cg")
                index = (place + s)[:, None, None] * block_c + c[None, :, None]
                area = sums + index * block_d + d[None, None, :]
                parts = tl.load(area, used[:, None, None], 0.0, cache_modifier=".cg")
                top = tl.max(tops, 0)
                rise = tl.exp2(tops - top[None, :])
                heavy = tl.sum(weights * rise, 0)
                joined = tl.sum(parts * rise[:, :, None], 0)
                ours = kv_head * group + c
                kept = (c < group)[:, None] & (d < width)[None, :]
                place_of = y + wide_row * y_row + ours[:, None] * y_head + d[None, :]
                _deliver(place_of, kept, top, heavy, joined, sinks, ours, c < group, has_sinks)


@triton.jit
def rows(
    query,
    cache,
    tables,
    lengths,
    starts,
    sinks,
    y,
    scale: tl.constexpr,
    window: tl.constexpr,
    has_sinks: tl.constexpr,
    sequences: tl.constexpr,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    width: tl.constexpr,
    page_size: tl.constexpr,
    max_pages: tl.constexpr,
    query_row: tl.constexpr,
    query_head: tl.constexpr,
    y_row: tl.constexpr,
    y_head: tl.constexpr,
    block_s: tl.constexpr,
    block_m: tl.constexpr,
    block_t: tl.constexpr,
    block_d: tl.constexpr,
    stages: tl.constexpr,
    several: tl.constexpr,
    early: tl.constexpr,
):
    """Tiles of rows of one sequence and one query head; the grid has a tile for every one that
    the sequences may need, and each tile finds its own by counting. Where only those with
    `several` rows are asked for, the others need none.
    """
    tile, head = tl.program_id(0), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    s = tl.arange(0, block_s)
    known = s < sequences
    opens = tl.load(starts + s, mask=known, other=0)
    closes = tl.load(starts + s + 1, mask=known, other=0)
    needed = (closes - opens + block_m - 1) // block_m
    if several:
        needed = tl.where(closes - opens == 1, 0, needed)
    ends = tl.cumsum(needed, 0)
    sequence = tl.sum((ends <= tile).to(tl.int32), 0)
    if sequence < sequences:
        ours = s == sequence
        opened = tl.sum(tl.where(ours, opens, 0), 0)
        closed = tl.sum(tl.where(ours, closes, 0), 0)
        before = tl.sum(tl.where(ours, ends - needed, 0), 0)
        length = tl.load(lengths + sequence)
        kv_head = head // group
        m = tl.arange(0, block_m)
        d = tl.arange(0, block_d)
        t = tl.arange(0, block_t)
        row = opened + (tile - before) * block_m + m
        mine = (row < closed)[:, None] & (d < width)[None, :]
        own = length - closed + row
        wide_row = row.to(tl.int64)
        place = query + wide_row[:, None] * query_row + head * query_head + d[None, :]
        q = tl.load(place, mask=mine, other=0.0)
        table = tables + sequence.to(tl.int64) * max_pages
        plane: tl.constexpr = kv_heads * page_size * width
        oldest = length - closed + opened + (tile - before) * block_m
        newest = tl.minimum(oldest + block_m, length)
        low = 0
        whole = (oldest + 1) // block_t * block_t
        if window > 0:
            low = tl.maximum(oldest - window + 1, 0) // block_t * block_t
            whole = low
        best = tl.full((block_m,), float("-inf"), tl.float32)
        weight = tl.zeros((block_m,), tl.float32)
        total = tl.zeros((block_m, block_d), tl.float32)
        held = (d < width)[None, :]
        in_page: tl.constexpr = page_size % block_t == 0
        for first in tl.range(low, whole, block_t, num_stages=stages):
            at = _keys_at(table, first, t, whole, kv_head, kv_heads, page_size, width, in_page)
            key = cache + at[:, None] + d[None, :]
            keys = tl.load(key, mask=held, other=0.0)
            values = tl.load(key + plane, mask=held, other=0.0)
            best, weight, total = _absorb(
                q, keys, values, held, best, weight, total, scale * LOG2_E, False
            )
        for first in tl.range(whole, newest, block_t, num_stages=stages):
            position = first + t
            at = _keys_at(table, first, t, newest, kv_head, kv_heads, page_size, width, in_page)
            inside = (position < newest)[:, None] & held
            key = cache + at[:, None] + d[None, :]
            keys = tl.load(key, mask=inside, other=0.0)
            values = tl.load(key + plane, mask=inside, other=0.0)
            visible = position[None, :] <= own[:, None]
            if window > 0:
                visible &= position[None, :] > own[:, None] - window
            best, weight, total = _absorb(
                q, keys, values, visible, best, weight, total, scale * LOG2_E, True
            )
        target = y + wide_row[:, None] * y_row + head * y_head + d[None, :]
        heads = tl.zeros((block_m,), tl.int32) + head
        _deliver(target, mine, best, weight, total, sinks, heads, row < closed, has_sinks)
