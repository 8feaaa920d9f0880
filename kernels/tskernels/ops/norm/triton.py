# pyright: basic
"""RMS norms, a block of threads for each row of a head."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import scaled_norm, start_dependents, wait_for_inputs


@triton.jit
def rms_norm(
    x,
    weight,
    y,
    width: tl.constexpr,
    x_row: tl.constexpr,
    x_head: tl.constexpr,
    y_row: tl.constexpr,
    y_head: tl.constexpr,
    eps: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, block)
    inside = column < width
    start_dependents(early)
    gain = tl.load(weight + column, mask=inside, other=0.0)
    wait_for_inputs(early)
    wide = tl.load(x + row * x_row + head * x_head + column, mask=inside, other=0.0)
    normed = scaled_norm(wide.to(tl.float32), gain, width, eps)
    tl.store(y + row * y_row + head * y_head + column, normed, mask=inside)


@triton.jit
def add_rms_norm(
    a,
    b,
    weight,
    total,
    y,
    width: tl.constexpr,
    a_row: tl.constexpr,
    a_head: tl.constexpr,
    b_row: tl.constexpr,
    b_head: tl.constexpr,
    y_row: tl.constexpr,
    y_head: tl.constexpr,
    eps: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, block)
    inside = column < width
    start_dependents(early)
    gain = tl.load(weight + column, mask=inside, other=0.0)
    wait_for_inputs(early)
    left = tl.load(a + row * a_row + head * a_head + column, mask=inside, other=0.0)
    right = tl.load(b + row * b_row + head * b_head + column, mask=inside, other=0.0)
    both = (left.to(tl.float32) + right.to(tl.float32)).to(gain.dtype)
    place = row * y_row + head * y_head + column
    tl.store(total + place, both, mask=inside)
    tl.store(y + place, scaled_norm(both.to(tl.float32), gain, width, eps), mask=inside)
