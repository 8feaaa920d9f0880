# pyright: basic
"""Elementwise ops, a block of threads for some columns of a row."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import silu, start_dependents, wait_for_inputs


@triton.jit
def binary(
    a,
    b,
    y,
    operation: tl.constexpr,
    width: tl.constexpr,
    heads: tl.constexpr,
    a_row: tl.constexpr,
    a_head: tl.constexpr,
    b_row: tl.constexpr,
    b_head: tl.constexpr,
    y_row: tl.constexpr,
    y_head: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    row, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    start_dependents(early)
    wait_for_inputs(early)
    left = tl.load(a + row * a_row + head * a_head + column, mask=inside, other=0.0)
    right = tl.load(b + row * b_row + head * b_head + column, mask=inside, other=0.0)
    first, second = left.to(tl.float32), right.to(tl.float32)
    if operation == "add":
        result = first + second
    else:
        result = silu(first).to(left.dtype).to(tl.float32) * second
    place = y + row * y_row + head * y_head + column
    tl.store(place, result.to(left.dtype), mask=inside)
