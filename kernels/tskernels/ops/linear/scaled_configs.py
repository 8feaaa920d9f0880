"""Block sizes of products with weights in e4m3, by the sizes of the product."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import gcd

from tskernels.launch import next_power_of_two
from tskernels.ops.linear.configs import Few, FewRows, Lines, ManyRows, OneRow, from_entry, takes
from tskernels.ops.linear.product import LINE, Product
from tskernels.schema import DType
from tskernels.tuning.table import table

GROUP = 16
"""Neighbours along the depth that one thread sums: blocks of scales must be made of such."""

_WIDEST = 128
"""Columns of a tile of weights: a line of memory."""


def scaled_few_rows(product: Product, arch: str) -> Few:
    """Block sizes for at most 64 rows: as measured on `arch`, else by rule."""
    measured = table(arch).get(product.key)
    if measured is not None:
        return from_entry(measured.config)
    return _streamed(product) if product.rows > 1 else _single(product)


def scaled_many_rows(product: Product) -> ManyRows:
    """Block sizes for any number of rows."""
    if product.dtype is DType.FLOAT32:
        return ManyRows(32, 32, min(32, tile_depth(product)), 4, 2)
    block_m = 128 if product.rows > 64 and not product.gated else 64
    return ManyRows(block_m, 128, tile_depth(product), 8, 3)


def tile_depth(product: Product) -> int:
    """Columns of a tile of weights, which lie within one block of scales."""
    assert product.block is not None
    return gcd(product.block[1], _WIDEST)


def scaled_candidates(product: Product) -> Iterator[Few]:
    """All block sizes worth measuring for at most 64 rows of two-byte numbers."""
    if product.rows == 1:
        yield from _single_candidates(product)
    else:
        yield from _line_candidates(product)
    block_m = max(GROUP, next_power_of_two(product.rows))
    sizes = ((32, 2), (64, 2), (64, 4), (128, 8))
    for (n, warps), splits, stages in itertools.product(sizes, (1, 2, 4), (4, 6)):
        config = FewRows(n, tile_depth(product), splits, warps, stages)
        if _fits(product, config, block_m):
            yield config


def _line_candidates(product: Product) -> Iterator[Lines]:
    """Those whose weights go straight to registers."""
    for n, warps, ahead in itertools.product((GROUP, 2 * GROUP), (2, 4, 8), (1, 2, 3, 4)):
        config = Lines(n, 1, warps, ahead)
        if n * ahead <= 3 * GROUP and scaled_takes(product, config):
            yield config


def scaled_takes(product: Product, config: Lines) -> bool:
    """As `takes`; and whether the block's rows, and a line's columns, share their scales.

    In bfloat16 only, whose exponents leave room for both factors.
    """
    assert product.block is not None
    rows, columns = product.block
    shared = columns == LINE and rows % config.columns == 0
    whole = config.tiles == 1 and config.block_n % GROUP == 0
    return takes(product, config) and shared and whole and product.dtype is DType.BFLOAT16


def _single_candidates(product: Product) -> Iterator[OneRow]:
    """A thread holds 32 to 192 weights, at most 128 of them of one tile, a row's or the gate's."""
    sizes = ((1, 2, 4, 8), (512, 1024, 2048, 4096), (1, 2, 4, 8), (0, 1, 2, 3, 4))
    for n, k, warps, ahead in itertools.product(*sizes):
        tile = n * k // (32 * warps) * (2 if product.gated else 1)
        fits = 512 * warps <= k <= next_power_of_two(product.depth) and ahead * k < product.depth
        if fits and tile <= 128 and 32 <= tile * max(1, ahead) <= 192:
            yield OneRow(n, k, warps, ahead)


def _fits(product: Product, config: FewRows, block_m: int) -> bool:
    """Whether enough is in flight, what is held has room, and blocks and splits are not idle."""
    n, k, splits = config.block_n, config.block_k, config.splits
    weights = 2 if product.gated else 1
    streamed = n * k * weights * (config.stages - 1)
    shared = streamed + 2 * block_m * k * (config.stages - 1)
    blocks = -(-product.columns // n) * splits
    return (
        streamed >= 12_288
        and shared <= 200_000
        and n * block_m * weights <= 2048 * config.num_warps
        and blocks >= 96
        and (splits == 1 or (blocks * config.num_warps <= 1600 and 2 * splits * k <= product.depth))
    )


def _single(product: Product) -> OneRow:
    block_k = max(GROUP, min(4096, next_power_of_two(product.depth)))
    return OneRow(1 if product.gated else 2, block_k, 8)


def _streamed(product: Product) -> FewRows:
    depth = tile_depth(product)
    if product.dtype is DType.FLOAT32:
        return FewRows(32, min(32, depth), 1, 4, 2)
    tiles = -(-product.columns // 64)
    splits = max(1, min(4, 256 // tiles, product.depth // 512))
    return FewRows(64, depth, splits, 4, 4)
