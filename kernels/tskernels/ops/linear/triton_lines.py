# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false, reportOperatorIssue=false, reportAssignmentType=false
"""Products of few rows whose weights go from memory straight to the matrix units' registers.

A thread loads 16 bytes of a row and takes them as what it holds of an operand, so that columns come
in another order than they lie in memory, in x's tile as in the weight's. Memory is read fastest by
whole lines, of which a row of an operand's tile holds half: rows 2r and 2r + 1 of the tile are the
halves of lines of the weight's row r. Both are multiplied by both halves of x, which are two
products, and of each only every other row is used.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tskernels.ops.device import silu, start_dependents, wait_for_inputs

multiplied = gl.nvidia.ampere.mma_v2


@gluon.jit
def joined(low, high, block_n: tl.constexpr, block_m: tl.constexpr):
    """Sums [block_n, block_m] of what the warps have of products with x's low and high halves."""
    rows = gl.arange(0, 2 * block_n, gl.SliceLayout(0, gl.SliceLayout(2, low.type.layout)))
    odd = rows[None, :][:, :, None] % 2 == 1
    both = gl.sum(gl.where(odd, high, low), 0)
    return gl.sum(gl.reshape(both, (block_n, 2, block_m)), 1)


@gluon.jit
def put(
    y,
    sums,
    ups,
    bias,
    first,
    rows: tl.constexpr,
    columns: tl.constexpr,
    y_row: tl.constexpr,
    gated: tl.constexpr,
    has_bias: tl.constexpr,
):
    """Add the bias to sums [n, m], gate by silu where asked, and store rows of y."""
    n = first + gl.arange(0, sums.shape[0], gl.SliceLayout(1, sums.type.layout))
    m = gl.arange(0, sums.shape[1], gl.SliceLayout(0, sums.type.layout))
    if has_bias:
        sums += gl.load(bias + n).to(gl.float32)[:, None]
        if gated:
            ups += gl.load(bias + columns + n).to(gl.float32)[:, None]
    if gated:
        sums = silu(sums) * ups
    place = y + (m[None, :] * y_row + n[:, None])
    gl.store(place, sums.to(y.dtype.element_ty), mask=(m < rows)[None, :])


@gluon.jit
def lines(
    x,
    weight,
    bias,
    y,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    x_row: tl.constexpr,
    w_row: tl.constexpr,
    y_row: tl.constexpr,
    gated: tl.constexpr,
    has_bias: tl.constexpr,
    warps: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    tiles: tl.constexpr,
    ahead: tl.constexpr,
    early: tl.constexpr,
):
    """Y [rows, columns] = x [rows, depth] @ weight.T; the block's warps share out the depth.

    Weight is [columns, depth], or [2 * columns, depth] where `gated`. `ahead` tiles of it are on
    their way to registers, the first of them while the kernels before still run. The warps' sums
    are added up at the end, always in the same order.
    """
    sums_layout: tl.constexpr = gl.NVMMADistributedLayout([2, 0], [warps, 1, 1], [1, 16, 8])
    left_layout: tl.constexpr = gl.DotOperandLayout(0, sums_layout, 8)
    right_layout: tl.constexpr = gl.DotOperandLayout(1, sums_layout, 8)
    share: tl.constexpr = 128
    span: tl.constexpr = warps * share
    steps: tl.constexpr = depth // span
    beyond: tl.constexpr = columns * w_row
    first = gl.program_id(0) * (tiles * block_n)
    w = gl.arange(0, warps, gl.SliceLayout(1, gl.SliceLayout(2, left_layout)))
    n = gl.arange(0, 2 * block_n, gl.SliceLayout(0, gl.SliceLayout(2, left_layout)))
    k = gl.arange(0, 64, gl.SliceLayout(0, gl.SliceLayout(1, left_layout)))
    place = (n // 2 * w_row + n % 2 * 32)[None, :][:, :, None] + (w * share)[:, None][:, :, None]
    place += (k // 32 * 64 + k % 32)[None, :][:, None, :]
    left = weight + first.to(gl.int64) * w_row + place
    w = gl.arange(0, warps, gl.SliceLayout(1, gl.SliceLayout(2, right_layout)))
    k = gl.arange(0, 64, gl.SliceLayout(0, gl.SliceLayout(2, right_layout)))
    m = gl.arange(0, block_m, gl.SliceLayout(0, gl.SliceLayout(1, right_layout)))
    place = (k // 32 * 64 + k % 32)[None, :][:, :, None] + (w * share)[:, None][:, :, None]
    right = x + ((m * x_row)[None, :][:, None, :] + place)
    kept = (m < rows)[None, :][:, None, :]
    start_dependents(early)
    held = ()
    for i in gl.static_range(ahead):
        at = left + (i // steps * block_n * w_row + i % steps * span)
        held += (gl.load(at, eviction_policy="evict_first"),)
        if gated:
            held += (gl.load(at + beyond, eviction_policy="evict_first"),)
    wait_for_inputs(early)
    low = gl.load(right, mask=kept, other=0.0)
    high = gl.load(right + 32, mask=kept, other=0.0)
    none = gl.zeros((warps, 2 * block_n, block_m), gl.float32, sums_layout)
    for turn in gl.static_range(tiles):
        low_sums = none
        high_sums = none
        low_ups = none
        high_ups = none
        for step in gl.static_range(steps):
            x_low = low
            x_high = high
            if turn * steps + step + 1 < tiles * steps:
                low = gl.load(right + (step + 1) % steps * span, mask=kept, other=0.0)
                high = gl.load(right + ((step + 1) % steps * span + 32), mask=kept, other=0.0)
            tile = held[0]
            low_sums = multiplied(tile, x_low, low_sums)
            high_sums = multiplied(tile, x_high, high_sums)
            if gated:
                tile = held[1]
                low_ups = multiplied(tile, x_low, low_ups)
                high_ups = multiplied(tile, x_high, high_ups)
            held = held[2:] if gated else held[1:]
            if turn * steps + step + ahead < tiles * steps:
                later = turn + (step + ahead) // steps
                at = left + (later * block_n * w_row + (step + ahead) % steps * span)
                held += (gl.load(at, eviction_policy="evict_first"),)
                if gated:
                    held += (gl.load(at + beyond, eviction_policy="evict_first"),)
        sums = joined(low_sums, high_sums, block_n, block_m)
        ups = sums
        if gated:
            ups = joined(low_ups, high_ups, block_n, block_m)
        begin = first + turn * block_n
        put(y, sums, ups, bias, begin, rows, columns, y_row, gated, has_bias)
