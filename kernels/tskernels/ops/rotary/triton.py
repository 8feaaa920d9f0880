# pyright: basic
"""The rotary table and the rotation, a block of threads for each row (of a head)."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import start_dependents, wait_for_inputs


@triton.jit
def _cos_sin(angle):
    """Cosine and sine of float32 angles, in radians, as exact as float64 makes them.

    Reduced by multiples of pi/2, then by Taylor's series up to the term of 2e-14.
    """
    wide = angle.to(tl.float64)
    turns = tl.floor(wide * 0.6366197723675814 + 0.5)
    rest = wide - turns * 1.5707963267948966
    square = rest * rest
    sine = 1.0 / 6227020800.0
    cosine = 1.0 / 479001600.0
    sine = 1.0 / 39916800.0 - square * sine
    cosine = 1.0 / 3628800.0 - square * cosine
    sine = 1.0 / 362880.0 - square * sine
    cosine = 1.0 / 40320.0 - square * cosine
    sine = 1.0 / 5040.0 - square * sine
    cosine = 1.0 / 720.0 - square * cosine
    sine = 1.0 / 120.0 - square * sine
    cosine = 1.0 / 24.0 - square * cosine
    sine = 1.0 / 6.0 - square * sine
    cosine = 0.5 - square * cosine
    sine = rest * (1.0 - square * sine)
    cosine = 1.0 - square * cosine
    quarter = turns.to(tl.int32) & 3
    odd = (quarter & 1) == 1
    cos = tl.where(odd, sine, cosine)
    sin = tl.where(odd, cosine, sine)
    cos = tl.where((quarter == 1) | (quarter == 2), -cos, cos)
    sin = tl.where(quarter >= 2, -sin, sin)
    return cos.to(tl.float32), sin.to(tl.float32)


@triton.jit
def rotary_table(
    positions,
    inv_freq,
    y,
    half: tl.constexpr,
    scale: tl.constexpr,
    y_row: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < half
    start_dependents(early)
    frequency = tl.load(inv_freq + column, mask=inside, other=0.0)
    wait_for_inputs(early)
    position = tl.load(positions + row).to(tl.float32)
    cos, sin = _cos_sin(position * frequency)
    tl.store(y + row * y_row + column, cos * scale, mask=inside)
    tl.store(y + row * y_row + half + column, sin * scale, mask=inside)


@triton.jit
def rotary(
    x,
    table,
    y,
    width: tl.constexpr,
    turned: tl.constexpr,
    interleaved: tl.constexpr,
    x_row: tl.constexpr,
    x_head: tl.constexpr,
    table_row: tl.constexpr,
    y_row: tl.constexpr,
    y_head: tl.constexpr,
    block: tl.constexpr,
    tail: tl.constexpr,
    early: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start_dependents(early)
    wait_for_inputs(early)
    source, target = x + row * x_row + head * x_head, y + row * y_row + head * y_head
    half: tl.constexpr = turned // 2
    pair = tl.arange(0, block)
    inside = pair < half
    left = pair * 2 if interleaved else pair
    right = left + 1 if interleaved else left + half
    angles = table + row * table_row + pair
    cos = tl.load(angles, mask=inside, other=0.0)
    sin = tl.load(angles + half, mask=inside, other=0.0)
    first = tl.load(source + left, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + right, mask=inside, other=0.0).to(tl.float32)
    kind = y.dtype.element_ty
    tl.store(target + left, (first * cos - second * sin).to(kind), mask=inside)
    tl.store(target + right, (second * cos + first * sin).to(kind), mask=inside)
    if tail > 0:
        column = turned + tl.arange(0, tail)
        rest = tl.load(source + column, mask=column < width, other=0.0)
        tl.store(target + column, rest, mask=column < width)
