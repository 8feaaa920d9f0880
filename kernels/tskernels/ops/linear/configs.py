"""Block sizes of the linear kernels, by the sizes of the product."""

from __future__ import annotations

from dataclasses import dataclass

from tskernels.launch import next_power_of_two
from tskernels.schema import DType


@dataclass(frozen=True, slots=True)
class Product:
    """x [rows, depth] times weight.T, to [rows, columns]; `gated` weights have twice the rows."""

    rows: int
    columns: int
    depth: int
    dtype: DType
    gated: bool


@dataclass(frozen=True, slots=True)
class OneRow:
    """A block computes `block_n` columns, `block_k` numbers of the depth at a time."""

    block_n: int
    block_k: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class FewRows:
    """A block streams `block_n` rows of the weight, over one of `splits` slices of the depth."""

    block_n: int
    block_k: int
    splits: int
    num_warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class ManyRows:
    """A block computes a tile; `group` tiles down share their columns of the weight in L2."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    stages: int
    group: int = 8


def one_row(product: Product) -> OneRow:
    """Block sizes for one row."""
    block_k = min(2048, next_power_of_two(product.depth))
    return OneRow(2 if product.columns > 16_384 else 1, block_k, 4)


def few_rows(product: Product) -> FewRows:
    """Block sizes for at most 64 rows."""
    if product.dtype is DType.FLOAT32:
        return FewRows(32, 32, 1, 4, 2)
    block_n = 32 if product.columns <= 8192 else 64
    tiles = -(-product.columns // block_n)
    splits = max(1, min(4, 256 // tiles, product.depth // 512))
    return FewRows(block_n, 128, splits, 4, 3)


def many_rows(product: Product) -> ManyRows:
    """Block sizes for any number of rows."""
    if product.dtype is DType.FLOAT32:
        return ManyRows(32, 32, 32, 4, 2)
    block_m = 128 if product.rows > 64 else 64
    return ManyRows(block_m, 64 if product.gated else 128, 64, 8 if block_m == 128 else 4, 3)
