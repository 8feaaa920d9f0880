# pyright: basic
"""Products with a weight: a streaming one for few rows, a tiled one for many."""

from __future__ import annotations

import triton
import triton.language as tl

from tskernels.ops.device import is_last, prefetch, silu, start_dependents, wait_for_inputs


@triton.jit
def _finish(y, sums, ups, bias, n, m, rows, columns, y_row, gated, has_bias):
    """Add the bias to sums [n, m], gate by silu where asked, and store rows of y."""
    within = (n < columns)[:, None] & (m < rows)[None, :]
    kind = y.dtype.element_ty
    if has_bias:
        sums += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)[:, None]
    if gated:
        if has_bias:
            beyond = bias + columns + n
            ups += tl.load(beyond, mask=n < columns, other=0.0).to(tl.float32)[:, None]
        sums = silu(sums) * ups
    place = y + m[None, :].to(tl.int64) * y_row + n[:, None]
    tl.store(place, sums.to(kind), mask=within)


@triton.jit
def few_rows(
    x,
    weight,
    bias,
    y,
    partial,
    counters,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    x_row: tl.constexpr,
    w_row: tl.constexpr,
    y_row: tl.constexpr,
    gated: tl.constexpr,
    has_bias: tl.constexpr,
    splits: tl.constexpr,
    block_n: tl.constexpr,
    block_m: tl.constexpr,
    block_k: tl.constexpr,
    stages: tl.constexpr,
    lines: tl.constexpr,
    early: tl.constexpr,
):
    """Y [rows, columns] = x [rows, depth] @ weight.T, a slice of the depth in each of `splits`.

    Weight is [columns, depth], or [2 * columns, depth] where `gated`. It is the product's left
    side, so that its rows fill the matrix units; the last split adds up the others' sums in order.
    While the kernels before still run, the first `lines` of 128 bytes of each row are fetched.
    """
    tile, split = tl.program_id(0), tl.program_id(1)
    n = tile * block_n + tl.arange(0, block_n)
    m = tl.arange(0, block_m)
    k = tl.arange(0, block_k)
    start_dependents(early)
    steps: tl.constexpr = (depth + block_k - 1) // block_k
    share: tl.constexpr = (steps + splits - 1) // splits
    begin = split * share * block_k
    end = tl.minimum(begin + share * block_k, depth)
    held = (n < columns)[:, None]
    wide_n = n.to(tl.int64)
    left = weight + wide_n[:, None] * w_row + k[None, :]
    if early:
        line = tl.arange(0, lines) * (128 // x.dtype.element_ty.itemsize)
        row = weight + tl.minimum(wide_n, columns - 1)[:, None] * w_row
        ahead = row + tl.minimum(begin + line, depth - 1)[None, :]
        prefetch(ahead)
        if gated:
            prefetch(ahead + columns * w_row)
    wait_for_inputs(early)
    right = x + m[None, :] * x_row + k[:, None]
    sums = tl.zeros((block_n, block_m), tl.float32)
    ups = tl.zeros((block_n, block_m), tl.float32)
    even: tl.constexpr = depth % block_k == 0
    for start in tl.range(begin, end, block_k, num_stages=stages):
        if even:
            a = tl.load(left + start, mask=held, other=0.0)
            b = tl.load(right + start, mask=(m < rows)[None, :], other=0.0)
            if gated:
                c = tl.load(left + start + columns * w_row, mask=held, other=0.0)
        else:
            inside = start + k < depth
            a = tl.load(left + start, mask=held & inside[None, :], other=0.0)
            b = tl.load(right + start, mask=(m < rows)[None, :] & inside[:, None], other=0.0)
            if gated:
                beyond = left + start + columns * w_row
                c = tl.load(beyond, mask=held & inside[None, :], other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        if gated:
            ups = tl.dot(c, b, ups, input_precision="ieee")
    if splits == 1:
        _finish(y, sums, ups, bias, n, m, rows, columns, y_row, gated, has_bias)
    else:
        area: tl.constexpr = block_n * block_m
        inner = tl.arange(0, block_n)[:, None] * block_m + m[None, :]
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


@triton.jit
def one_row(
    x,
    weight,
    bias,
    y,
    columns: tl.constexpr,
    depth: tl.constexpr,
    w_row: tl.constexpr,
    gated: tl.constexpr,
    has_bias: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
    ahead: tl.constexpr,
    early: tl.constexpr,
):
    """Y [columns] = x [depth] @ weight.T by plain arithmetic; weight as for `few_rows`.

    `ahead` of a row's tiles are on their way while another is multiplied; with none of them a tile
    is asked for when its turn has come. The first ones are, while the kernels before still run.
    """
    n = tl.program_id(0) * block_n + tl.arange(0, block_n)
    k = tl.arange(0, block_k)
    held = (n < columns)[:, None]
    left = weight + n.to(tl.int64)[:, None] * w_row + k[None, :]
    beyond = left + columns * w_row
    steps: tl.constexpr = (depth + block_k - 1) // block_k
    start_dependents(early)
    tiles = ()
    gates = ()
    for i in tl.static_range(ahead if ahead > 0 else 1):
        inside = held & (i * block_k + k < depth)[None, :]
        tiles += (tl.load(left + i * block_k, mask=inside, other=0.0),)
        if gated:
            gates += (tl.load(beyond + i * block_k, mask=inside, other=0.0),)
    wait_for_inputs(early)
    for i in tl.static_range(steps):
        if (ahead > 0 or i > 0) and i + ahead < steps:
            later = (i + ahead) * block_k
            inside = held & (later + k < depth)[None, :]
            tiles += (tl.load(left + later, mask=inside, other=0.0),)
            if gated:
                gates += (tl.load(beyond + later, mask=inside, other=0.0),)
        at = i * block_k + k
        b = tl.load(x + at, mask=at < depth, other=0.0).to(tl.float32)
        products = tiles[0].to(tl.float32) * b[None, :]
        tiles = tiles[1:]
        if i == 0:
            sums = products
        else:
            sums += products
        if gated:
            products = gates[0].to(tl.float32) * b[None, :]
            gates = gates[1:]
            if i == 0:
                ups = products
            else:
                ups += products
    total = tl.sum(sums, 1)
    if has_bias:
        total += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)
    if gated:
        other = tl.sum(ups, 1)
        if has_bias:
            other += tl.load(bias + columns + n, mask=n < columns, other=0.0).to(tl.float32)
        total = silu(total) * other
    tl.store(y + n, total.to(y.dtype.element_ty), mask=n < columns)


@triton.jit
def tiles(
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
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
    group: tl.constexpr,
    early: tl.constexpr,
):
    """The same for any rows: tiles of y, `group` of them down its rows before the next columns."""
    down: tl.constexpr = (rows + block_m - 1) // block_m
    across: tl.constexpr = (columns + block_n - 1) // block_n
    place = tl.program_id(0)
    first = place // (group * across) * group
    height = tl.minimum(down - first, group)
    within = place % (group * across)
    m = (first + within % height) * block_m + tl.arange(0, block_m)
    n = (within // height) * block_n + tl.arange(0, block_n)
    k = tl.arange(0, block_k)
    start_dependents(early)
    wait_for_inputs(early)
    left = x + (m % rows).to(tl.int64)[:, None] * x_row + k[None, :]
    right = weight + (n % columns).to(tl.int64)[None, :] * w_row + k[:, None]
    sums = tl.zeros((block_m, block_n), tl.float32)
    ups = tl.zeros((block_m, block_n), tl.float32)
    even: tl.constexpr = depth % block_k == 0
    for start in range(0, depth, block_k):
        if even:
            a = tl.load(left + start)
            b = tl.load(right + start)
            if gated:
                c = tl.load(right + start + columns * w_row)
        else:
            inside = start + k < depth
            a = tl.load(left + start, mask=inside[None, :], other=0.0)
            b = tl.load(right + start, mask=inside[:, None], other=0.0)
            if gated:
                beyond = right + start + columns * w_row
                c = tl.load(beyond, mask=inside[:, None], other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        if gated:
            ups = tl.dot(a, c, ups, input_precision="ieee")
    kept = n < columns
    if has_bias:
        sums += tl.load(bias + n, mask=kept, other=0.0).to(tl.float32)[None, :]
    if gated:
        if has_bias:
            ups += tl.load(bias + columns + n, mask=kept, other=0.0).to(tl.float32)[None, :]
        sums = silu(sums) * ups
    target = y + m.to(tl.int64)[:, None] * y_row + n[None, :]
    tl.store(target, sums.to(y.dtype.element_ty), mask=(m < rows)[:, None] & kept[None, :])
