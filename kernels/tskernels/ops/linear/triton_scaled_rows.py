# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false, reportOperatorIssue=false, reportAssignmentType=false
"""As `triton_lines`, with a weight in e4m3 whose blocks of 128 columns have scales.

Here half a line goes to a row of the weight's tile, which the matrix units multiply as bfloat16.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tskernels.ops.device import start_dependents, wait_for_inputs
from tskernels.ops.linear.triton_lines import multiplied, put


@gluon.jit
def lowered(bits, native: tl.constexpr):
    """The numbers whose `bits` these are, times 2**-120, as bfloat16: four from a word at once."""
    if native:
        return gl.inline_asm_elementwise(
            """{
            .reg .b32 low, high, low_rest, high_rest;
            prmt.b32 low, $2, 0, 0x1404;
            prmt.b32 high, $2, 0, 0x3424;
            shr.u32 low_rest, low, 4;
            shr.u32 high_rest, high, 4;
            and.b32 low_rest, low_rest, 0x07f007f0;
            and.b32 high_rest, high_rest, 0x07f007f0;
            lop3.b32 $0, low, 0x80008000, low_rest, 0xea;
            lop3.b32 $1, high, 0x80008000, high_rest, 0xea;
            }""",
            "=r,=r,r",
            [bits],
            dtype=gl.bfloat16,
            is_pure=True,
            pack=4,
        )
    word = bits.to(gl.int16)
    moved = ((word & 0x80) << 8) | ((word & 0x7F) << 4)
    return moved.to(gl.bfloat16, bitcast=True)


@gluon.jit
def lifted(x, native: tl.constexpr):
    """X times 2**64, which loses nothing of any number that a model computes with."""
    factor: tl.constexpr = 18446744073709551616.0
    if native:
        return gl.inline_asm_elementwise(
            "mul.rn.bf16x2 $0, $1, $2;",
            "=r,r,r",
            [x, gl.full_like(x, factor)],
            dtype=gl.bfloat16,
            is_pure=True,
            pack=2,
        )
    return (x.to(gl.float32) * factor).to(gl.bfloat16)


@gluon.jit
def scaled_rows(
    x,
    weight,
    scale,
    bias,
    y,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    x_row: tl.constexpr,
    w_row: tl.constexpr,
    s_row: tl.constexpr,
    y_row: tl.constexpr,
    rows_a_block: tl.constexpr,
    gated: tl.constexpr,
    has_bias: tl.constexpr,
    native: tl.constexpr,
    warps: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    ahead: tl.constexpr,
    early: tl.constexpr,
):
    """Y [rows, columns] = x [rows, depth] @ (weight * scale).T, as `lines` for a plain weight.

    What a block of scales gives is summed apart. Weights are 2**-120 times what they should be, and
    x is lifted, so that the sums are where float32 is at its best.
    """
    sums_layout: tl.constexpr = gl.NVMMADistributedLayout([2, 0], [warps, 1, 1], [1, 16, 8])
    left_layout: tl.constexpr = gl.DotOperandLayout(0, sums_layout, 16)
    right_layout: tl.constexpr = gl.DotOperandLayout(1, sums_layout, 16)
    wide: tl.constexpr = 128
    span: tl.constexpr = warps * wide
    steps: tl.constexpr = depth // span
    beyond: tl.constexpr = columns * w_row
    up_scales: tl.constexpr = columns // rows_a_block * s_row
    first = gl.program_id(0) * block_n
    w = gl.arange(0, warps, gl.SliceLayout(1, gl.SliceLayout(2, left_layout)))
    n = gl.arange(0, block_n, gl.SliceLayout(0, gl.SliceLayout(2, left_layout)))
    k = gl.arange(0, wide, gl.SliceLayout(0, gl.SliceLayout(1, left_layout)))
    place = (n * w_row)[None, :][:, :, None] + (w * wide)[:, None][:, :, None]
    left = weight + first.to(gl.int64) * w_row + (place + k[None, :][:, None, :])
    w = gl.arange(0, warps, gl.SliceLayout(1, gl.SliceLayout(2, right_layout)))
    k = gl.arange(0, wide, gl.SliceLayout(0, gl.SliceLayout(2, right_layout)))
    m = gl.arange(0, block_m, gl.SliceLayout(0, gl.SliceLayout(1, right_layout)))
    place = k[None, :][:, :, None] + (w * wide)[:, None][:, :, None]
    right = x + ((m * x_row)[None, :][:, None, :] + place)
    kept = (m < rows)[None, :][:, None, :]
    w = gl.arange(0, warps, gl.SliceLayout(1, gl.SliceLayout(2, sums_layout)))
    n = first + gl.arange(0, block_n, gl.SliceLayout(0, gl.SliceLayout(2, sums_layout)))
    place = (n // rows_a_block * s_row)[None, :][:, :, None]
    scales = scale + (place + w[:, None][:, :, None])
    start_dependents(early)
    held = ()
    factors = ()
    for i in gl.static_range(ahead):
        held += (gl.load(left + i * span, eviction_policy="evict_first"),)
        factors += (gl.load(scales + i * warps),)
        if gated:
            held += (gl.load(left + beyond + i * span, eviction_policy="evict_first"),)
            factors += (gl.load(scales + (up_scales + i * warps)),)
    wait_for_inputs(early)
    following = gl.load(right, mask=kept, other=0.0)
    none = gl.zeros((warps, block_n, block_m), gl.float32, sums_layout)
    sums = none
    ups = none
    for i in gl.static_range(steps):
        fed = lifted(following, native)
        if i + 1 < steps:
            following = gl.load(right + (i + 1) * span, mask=kept, other=0.0)
        tile = held[0]
        factor = factors[0]
        held = held[1:]
        factors = factors[1:]
        if i + ahead < steps:
            held += (gl.load(left + (i + ahead) * span, eviction_policy="evict_first"),)
            factors += (gl.load(scales + (i + ahead) * warps),)
        sums += multiplied(lowered(tile, native), fed, none) * factor
        if gated:
            tile = held[0]
            factor = factors[0]
            held = held[1:]
            factors = factors[1:]
            if i + ahead < steps:
                later = left + beyond + (i + ahead) * span
                held += (gl.load(later, eviction_policy="evict_first"),)
                factors += (gl.load(scales + (up_scales + (i + ahead) * warps)),)
            ups += multiplied(lowered(tile, native), fed, none) * factor
    unlifted: tl.constexpr = 72057594037927936.0
    total = gl.sum(sums, 0) * unlifted
    up = total
    if gated:
        up = gl.sum(ups, 0) * unlifted
    put(y, total, up, bias, first, rows, columns, y_row, gated, has_bias)
