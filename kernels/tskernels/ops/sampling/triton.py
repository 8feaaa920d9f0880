# pyright: basic
"""The largest logit of each row, and what becomes of its token: the next step's input."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import is_last, start_dependents, wait_for_inputs


@triton.jit
def feed(
    slots,
    sampled,
    ids,
    rows: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    """ids[row] = sampled[slots[row]] where it is below 0, the last token of the row's sequence."""
    row = tl.arange(0, block)
    inside = row < rows
    start_dependents(early)
    wait_for_inputs(early)
    known = tl.load(ids + row, mask=inside, other=0)
    slot = tl.load(slots + row, mask=inside, other=0)
    unknown = inside & (known < 0)
    last = tl.load(sampled + slot, mask=unknown & (slot >= 0), other=0)
    tl.store(ids + row, last, mask=unknown)


@triton.jit
def greedy(
    logits,
    slots,
    tokens,
    sampled,
    values,
    places,
    counters,
    columns: tl.constexpr,
    logits_row: tl.constexpr,
    splits: tl.constexpr,
    block: tl.constexpr,
    block_s: tl.constexpr,
    kept: tl.constexpr,
    early: tl.constexpr,
):
    """tokens[row] = the lowest column of the largest logit; -1 where that is no finite number.

    NaN counts as larger than any number. Where `kept`, sampled[slots[row]] is it too.
    """
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    share: tl.constexpr = ((columns + block - 1) // block + splits - 1) // splits * block
    begin = split * share
    lane = tl.arange(0, block)
    best = tl.full((block,), float("-inf"), tl.float32)
    place = tl.full((block,), columns, tl.int32)
    for first in tl.range(begin, tl.minimum(begin + share, columns), block):
        column = first + lane
        held = tl.load(logits + row * logits_row + column, column < columns, float("-inf"))
        value = held.to(tl.float32)
        value = tl.where(value == value, value, float("inf"))
        larger = value > best
        best = tl.where(larger, value, best)
        place = tl.where(larger, column, place)
    top = tl.max(best, 0)
    lowest = tl.min(tl.where(best == top, place, columns), 0)
    tl.store(values + row * splits + split, top)
    tl.store(places + row * splits + split, lowest)
    if is_last(counters + row, splits):
        s = tl.arange(0, block_s)
        tops = tl.load(values + row * splits + s, s < splits, float("-inf"), cache_modifier=".cg")
        lows = tl.load(places + row * splits + s, s < splits, columns, cache_modifier=".cg")
        top = tl.max(tops, 0)
        lowest = tl.min(tl.where(tops == top, lows, columns), 0)
        finite = (top < float("inf")) & (top > float("-inf"))
        token = tl.where(finite, lowest, -1)
        tl.store(tokens + row, token)
        if kept:
            slot = tl.load(slots + row)
            tl.store(sampled + slot, token, mask=slot >= 0)
