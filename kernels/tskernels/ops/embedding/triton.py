# pyright: basic
"""Gathering rows, a block of threads for some columns of a row."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import start_dependents, wait_for_inputs


@triton.jit
def gather_rows(
    rows,
    x,
    y,
    first: tl.constexpr,
    count: tl.constexpr,
    width: tl.constexpr,
    x_row: tl.constexpr,
    y_row: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    """y[i] = x[rows[i] - first], or zeros where x has no such row of its `count`."""
    i = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    start_dependents(early)
    wait_for_inputs(early)
    row = tl.load(rows + i).to(tl.int64) - first
    held = (row >= 0) & (row < count)
    value = tl.load(x + row * x_row + column, mask=inside & held, other=0.0)
    tl.store(y + i * y_row + column, value, mask=inside)
