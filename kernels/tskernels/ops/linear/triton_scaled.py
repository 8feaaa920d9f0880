# pyright: basic
"""Products with a weight in e4m3 whose blocks have scales: one row by plain arithmetic, tiles."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import is_last, prefetch, silu, start_dependents, wait_for_inputs
from tskernels.ops.linear.triton import _finish


@triton.jit
def decoded(bits, native: tl.constexpr):
    """The e4m3 numbers whose `bits` these are, as halves, which hold them all.

    Where the GPU has no instruction for it, sign, exponent and mantissa move to where a half has
    them; its exponents begin 8 below.
    """
    if native:
        return bits.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    word = bits.to(tl.int16)
    moved = ((word & 0x80) << 8) | ((word & 0x7F) << 7)
    return moved.to(tl.float16, bitcast=True) * 256.0


@triton.jit
def _sums(bits, low, high, native: tl.constexpr):
    """Sums [n, groups] of 16 products each: of weights [n, groups, 16] and x.

    `low` and `high` are x's halves of each group [1, groups, 8] in float32. So halved, a thread
    that loads 16 bytes of the weight loads 16 bytes of x too, and they meet where they are.
    """
    n: tl.constexpr = bits.shape[0]
    groups: tl.constexpr = bits.shape[1]
    halves = tl.permute(tl.reshape(bits, (n, groups, 2, 8)), (0, 1, 3, 2))
    first, second = tl.split(halves)
    sums = tl.sum(decoded(first, native).to(tl.float32) * low, 2)
    return sums + tl.sum(decoded(second, native).to(tl.float32) * high, 2)


@triton.jit
def _halves(x, place, depth: tl.constexpr):
    """Entries of x [1, groups, 8] from `place` [groups] on, and the 8 behind them, in float32."""
    k = place[:, None] + tl.arange(0, 8)[None, :]
    low = tl.load(x + k, mask=k < depth, other=0.0).to(tl.float32)
    high = tl.load(x + k + 8, mask=k + 8 < depth, other=0.0).to(tl.float32)
    return low[None, :, :], high[None, :, :]


@triton.jit
def _tile(left, scales, kept, place, start: tl.constexpr, depth: tl.constexpr, block: tl.constexpr):
    """Weights [n, groups, 16] from column `start` on of the rows at `left`, and their scales.

    `place` [groups] are the groups' first columns, of which `block` share a scale.
    """
    held = kept & (start + place < depth)[None, :]
    k = start + place[:, None] + tl.arange(0, 16)[None, :]
    bits = tl.load(left + start, mask=held[:, :, None] & (k < depth)[None, :, :], other=0)
    return bits, tl.load(scales + ((start + place) // block)[None, :], mask=held, other=0.0)


@triton.jit
def _put(y, total, other, bias, n, columns, gated: tl.constexpr, has_bias: tl.constexpr):
    """Add the bias to sums [n], gate by silu where asked, and store entries of y."""
    if has_bias:
        total += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)
    if gated:
        if has_bias:
            other += tl.load(bias + columns + n, mask=n < columns, other=0.0).to(tl.float32)
        total = silu(total) * other
    tl.store(y + n, total.to(y.dtype.element_ty), mask=n < columns)


@triton.jit
def scaled_one_row(
    x,
    weight,
    scale,
    bias,
    y,
    columns: tl.constexpr,
    depth: tl.constexpr,
    w_row: tl.constexpr,
    s_row: tl.constexpr,
    rows_a_block: tl.constexpr,
    columns_a_block: tl.constexpr,
    gated: tl.constexpr,
    has_bias: tl.constexpr,
    native: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
    ahead: tl.constexpr,
    early: tl.constexpr,
):
    """Y [columns] = x [depth] @ (weight * scale).T; weight is twice as tall where `gated`.

    Products are summed by 16 neighbours, which share a scale: one multiplication for all of them.
    `ahead` tiles are on their way while another is multiplied, as in `one_row`.
    """
    groups: tl.constexpr = block_k // 16
    n = tl.program_id(0) * block_n + tl.arange(0, block_n)
    place = tl.arange(0, groups) * 16
    k = place[:, None] + tl.arange(0, 16)[None, :]
    left = weight + n.to(tl.int64)[:, None, None] * w_row + k[None, :, :]
    scales = scale + (n // rows_a_block)[:, None] * s_row
    beyond = left + columns * w_row
    up_scales = scales + (columns // rows_a_block) * s_row
    kept = (n < columns)[:, None]
    steps: tl.constexpr = (depth + block_k - 1) // block_k
    start_dependents(early)
    tiles = ()
    gates = ()
    for i in tl.static_range(ahead if ahead > 0 else 1):
        start = i * block_k
        tiles += (_tile(left, scales, kept, place, start, depth, columns_a_block),)
        if gated:
            gates += (_tile(beyond, up_scales, kept, place, start, depth, columns_a_block),)
    wait_for_inputs(early)
    for i in tl.static_range(steps):
        if (ahead > 0 or i > 0) and i + ahead < steps:
            later = (i + ahead) * block_k
            tiles += (_tile(left, scales, kept, place, later, depth, columns_a_block),)
            if gated:
                gates += (_tile(beyond, up_scales, kept, place, later, depth, columns_a_block),)
        low, high = _halves(x, i * block_k + place, depth)
        part = _sums(tiles[0][0], low, high, native) * tiles[0][1]
        tiles = tiles[1:]
        if i == 0:
            sums = part
            ups = part
        else:
            sums += part
        if gated:
            part = _sums(gates[0][0], low, high, native) * gates[0][1]
            gates = gates[1:]
            if i == 0:
                ups = part
            else:
                ups += part
    _put(y, tl.sum(sums, 1), tl.sum(ups, 1), bias, n, columns, gated, has_bias)


@triton.jit
def scaled_tiles(
    x,
    weight,
    scale,
    bias,
    y,
    partial,
    counters,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    x_row: tl.constexpr,
    w_row: tl.constexpr,
    s_row: tl.constexpr,
    y_row: tl.constexpr,
    rows_a_block: tl.constexpr,
    columns_a_block: tl.constexpr,
    gated: tl.constexpr,
    has_bias: tl.constexpr,
    native: tl.constexpr,
    splits: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_k: tl.constexpr,
    group: tl.constexpr,
    stages: tl.constexpr,
    lines: tl.constexpr,
    early: tl.constexpr,
):
    """The same for any rows, a tile [block_n, block_m] of y transposed in each block.

    `group` tiles along the rows come before the next columns. The weight is the product's left
    side, decoded on its way there; what `block_k` columns of a block of scales give is scaled as
    a whole. Of several `splits` of the depth the last one adds up the others' sums in order.
    """
    down: tl.constexpr = (rows + block_m - 1) // block_m
    across: tl.constexpr = (columns + block_n - 1) // block_n
    tile, split = tl.program_id(0), tl.program_id(1)
    first = tile // (group * across) * group
    height = tl.minimum(down - first, group)
    within = tile % (group * across)
    m = (first + within % height) * block_m + tl.arange(0, block_m)
    n = (within // height) * block_n + tl.arange(0, block_n)
    k = tl.arange(0, block_k)
    start_dependents(early)
    steps: tl.constexpr = (depth + block_k - 1) // block_k
    share: tl.constexpr = (steps + splits - 1) // splits
    begin = split * share * block_k
    end = tl.minimum(begin + share * block_k, depth)
    low_n = tl.minimum(n, columns - 1)
    row = weight + low_n.to(tl.int64)[:, None] * w_row
    left = row + k[None, :]
    scales = scale + (low_n // rows_a_block) * s_row
    up_scales = scales + (columns // rows_a_block) * s_row
    if early:
        line = tl.arange(0, lines) * 128
        ahead = row + tl.minimum(begin + line, depth - 1)[None, :]
        prefetch(ahead)
        if gated:
            prefetch(ahead + columns * w_row)
    wait_for_inputs(early)
    right = x + m[None, :].to(tl.int64) * x_row + k[:, None]
    sums = tl.zeros((block_n, block_m), tl.float32)
    ups = tl.zeros((block_n, block_m), tl.float32)
    even: tl.constexpr = depth % block_k == 0
    kind = x.dtype.element_ty
    for start in tl.range(begin, end, block_k, num_stages=stages):
        at = start // columns_a_block
        s = tl.load(scales + at)[:, None]
        if even:
            a = tl.load(left + start)
            b = tl.load(right + start, mask=(m < rows)[None, :], other=0.0)
            if gated:
                c = tl.load(left + start + columns * w_row)
        else:
            inside = start + k < depth
            a = tl.load(left + start, mask=inside[None, :], other=0)
            b = tl.load(right + start, mask=(m < rows)[None, :] & inside[:, None], other=0.0)
            if gated:
                c = tl.load(left + start + columns * w_row, mask=inside[None, :], other=0)
        sums += tl.dot(decoded(a, native).to(kind), b, input_precision="ieee") * s
        if gated:
            up_s = tl.load(up_scales + at)[:, None]
            ups += tl.dot(decoded(c, native).to(kind), b, input_precision="ieee") * up_s
    if splits == 1:
        _finish(y, sums, ups, bias, n, m, rows, columns, y_row, gated, has_bias)
    else:
        area: tl.constexpr = block_n * block_m
        inner = tl.arange(0, block_n)[:, None] * block_m + tl.arange(0, block_m)[None, :]
        parts: tl.constexpr = 2 if gated else 1
        base = partial + tile * (splits * parts * area) + inner
        tl.store(base + split * parts * area, sums)
        if gated:
            tl.store(base + (split * parts + 1) * area, ups)
        if is_last(counters + tile, splits):
            sums = tl.zeros((block_n, block_m), tl.float32)
            ups = tl.zeros((block_n, block_m), tl.float32)
            for other in tl.static_range(splits):
                sums += tl.load(base + other * parts * area, cache_modifier=".cg")
                if gated:
                    ups += tl.load(base + (other * parts + 1) * area, cache_modifier=".cg")
            _finish(y, sums, ups, bias, n, m, rows, columns, y_row, gated, has_bias)
