# pyright: basic
"""Log-probabilities of the raw model: of the drawn token, and of the most likely ones."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import is_last, start_dependents, wait_for_inputs
from tskernels.ops.sampling.triton_full import key_of, of_key

_NOTHING = tl.constexpr(-(1 << 63))


@triton.jit
def ranked(x, column):
    """One int64 that rises with float32 `x` and, of equal ones, falls with the column."""
    return ((key_of(x) - 2147483648) << 32) | (column.to(tl.int64) ^ 0xFFFFFFFF)


@triton.jit
def largest(left, most: tl.constexpr, block_m: tl.constexpr):
    """The `most` largest of distinct int64s, falling, and then nothing, [block_m]."""
    m = tl.arange(0, block_m)
    found = tl.full((block_m,), _NOTHING, tl.int64)
    for i in tl.range(0, most):  # pyright: ignore[reportGeneralTypeIssues]
        first = tl.max(left, 0)
        found = tl.where(m == i, first, found)
        left = tl.where(left == first, _NOTHING, left)
    return found


@triton.jit
def logprobs(
    logits,
    tokens,
    chosen,
    top_ids,
    top_values,
    keys,
    maxima,
    exponentials,
    counters,
    columns: tl.constexpr,
    logits_row: tl.constexpr,
    splits: tl.constexpr,
    share: tl.constexpr,
    block: tl.constexpr,
    block_s: tl.constexpr,
    most: tl.constexpr,
    block_m: tl.constexpr,
    early: tl.constexpr,
):
    """chosen[row] = log p of tokens[row]; top_ids and top_values [row, most] of the likeliest.

    p is the softmax of the logits as they are. Of equal ones the lowest ids come first.
    """
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    lane = tl.arange(0, block)
    column = split * share + lane
    inside = (lane < share) & (column < columns)
    x = tl.load(logits + row * logits_row + column, inside, float("-inf")).to(tl.float32)
    x = tl.where(x == x, x, float("-inf"))
    top = tl.max(x, 0)
    part = row * splits + split
    tl.store(maxima + part, top)
    base = tl.where(top > float("-inf"), top, 0.0)
    tl.store(exponentials + part, tl.sum(tl.exp(x - base), 0))
    m = tl.arange(0, block_m)
    found = largest(tl.where(inside, ranked(x, column), _NOTHING), most, block_m)
    tl.store(keys + part * block_m + m, found)
    if is_last(counters + row, splits):
        s = tl.arange(0, block_s)
        parts = row * splits + s
        tops = tl.load(maxima + parts, s < splits, float("-inf"), cache_modifier=".cg")
        sums = tl.load(exponentials + parts, s < splits, 0.0, cache_modifier=".cg")
        top = tl.max(tops, 0)
        total = tl.sum(tl.where(tops > float("-inf"), sums * tl.exp(tops - top), 0.0), 0)
        log_sum = tl.log(total)
        token = tl.load(tokens + row)
        own = tl.load(logits + row * logits_row + token, token >= 0, float("-inf")).to(tl.float32)
        tl.store(chosen + row, (own - top) - log_sum)
        every = tl.load(
            keys + parts[:, None] * block_m + m[None, :],
            (s[:, None] < splits) & (m[None, :] < most),
            _NOTHING,
            cache_modifier=".cg",
        )
        found = largest(tl.reshape(every, (block_s * block_m,)), most, block_m)
        value = of_key((found >> 32) + 2147483648)
        tl.store(
            top_ids + row * most + m, ((found & 0xFFFFFFFF) ^ 0xFFFFFFFF).to(tl.int32), m < most
        )
        tl.store(top_values + row * most + m, (value - top) - log_sum, m < most)
