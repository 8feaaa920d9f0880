"""Block sizes of the linear kernels, by the sizes of the product."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tskernels.launch import next_power_of_two
from tskernels.ops.linear.product import LINE, MOST_LINES, Product, block_of
from tskernels.ops.linear.rings import Ring, ring_candidates
from tskernels.schema import DType
from tskernels.tuning.table import table


@dataclass(frozen=True, slots=True)
class OneRow:
    """A block computes `block_n` columns, `block_k` numbers of the depth at a time.

    `ahead` such tiles of weights are on their way while one is multiplied.
    """

    block_n: int
    block_k: int
    num_warps: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class FewRows:
    """A block streams `block_n` rows of the weight, over one of `splits` slices of the depth."""

    block_n: int
    block_k: int
    splits: int
    num_warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Lines:
    """A block reads `tiles` times `block_n` rows of the weight; its warps share out the depth.

    They go straight to registers, `ahead` tiles of a warp at a time.
    """

    block_n: int
    tiles: int
    num_warps: int
    ahead: int

    @property
    def columns(self) -> int:
        """Rows of the weight, columns of the product, that a block has."""
        return self.block_n * self.tiles


@dataclass(frozen=True, slots=True)
class ManyRows:
    """A block computes a tile; `group` tiles down share their columns of the weight in L2."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    stages: int
    group: int = 8


Few: TypeAlias = OneRow | FewRows | Lines
"""Block sizes of a product of at most 64 rows, of any weight."""

Plain: TypeAlias = Few | Ring
"""Those of a product with a weight that has no scales."""


def few_rows(product: Product, arch: str, *, aligned: bool = True) -> Plain:
    """Block sizes for at most 64 rows: as measured on `arch`, else by rule.

    Where rows are not `aligned` to 16 bytes, the tensor copy engine cannot fetch them.
    """
    measured = table(arch).get(product.key)
    if measured is not None:
        if "row_blocks" not in measured.config:
            return from_entry(measured.config)
        if aligned:
            return Ring(**measured.config)
    return _streamed(product) if product.rows > 1 else _single(product)


def from_entry(entry: Mapping[str, int]) -> Few:
    """The block sizes of a tuning table's entry, by the names of the fields."""
    if "tiles" in entry:
        return Lines(**entry)
    return FewRows(**entry) if "splits" in entry else OneRow(**entry)


def candidates(product: Product) -> Iterator[Plain]:
    """All block sizes worth measuring for at most 64 rows of two-byte numbers."""
    if product.rows == 1:
        yield from _single_candidates(product)
        return
    yield from line_candidates(product)
    yield from ring_candidates(product)
    block_m = block_of(product.rows)
    for n, k, splits, warps, stages in itertools.product(
        (32, 64, 128), (64, 128, 256, 512), (1, 2, 4), (4, 8), (3, 4, 5)
    ):
        config = FewRows(n, k, splits, warps, stages)
        if _fits(product, config, block_m):
            yield config


def _single_candidates(product: Product) -> Iterator[OneRow]:
    """A thread holds up to 64 weights of a row at a time, and as many of the gate's other half."""
    sizes = ((1, 2, 4), (1024, 2048, 4096), (4, 8), (0, 1, 2, 3))
    for n, k, warps, ahead in itertools.product(*sizes):
        held = n * k // warps * max(1, ahead)
        if held <= 2048 and ahead * k < product.depth and k <= next_power_of_two(product.depth):
            yield OneRow(n, k, warps, ahead)


def line_candidates(product: Product) -> Iterator[Lines]:
    """Those that read whole lines, where the matrix units' registers hold the sums of all rows."""
    most = 4 if product.gated else 8
    for tiles, warps, ahead in itertools.product((1, 2, 4), (1, 2, 4), (2, 3, 4, 6, 8)):
        config = Lines(8, tiles, warps, ahead)
        if ahead <= most and takes(product, config):
            yield config


def takes(product: Product, config: Lines) -> bool:
    """Whether blocks and steps of `config` come out even, as they must."""
    step = config.num_warps * (2 * LINE // product.weight_bytes)
    steps = product.depth // step
    return (
        product.rows <= MOST_LINES
        and product.columns % config.columns == 0
        and product.depth % step == 0
        and steps * config.tiles >= config.ahead
        and product.dtype is not DType.FLOAT32
    )


def _fits(product: Product, config: FewRows, block_m: int) -> bool:
    """Whether enough is in flight, what is held has room, and blocks and splits are not idle."""
    n, k, splits = config.block_n, config.block_k, config.splits
    weights = 2 if product.gated else 1
    streamed = 2 * n * k * weights * (config.stages - 1)
    shared = streamed + 2 * block_m * k * (config.stages - 1)
    blocks = -(-product.columns // n) * splits
    return (
        streamed >= 32_768
        and shared <= 200_000
        and n * block_m * weights <= 2048 * config.num_warps
        and (config.num_warps == 4 or n == 128)
        and blocks >= 96
        and (splits == 1 or (blocks <= 300 and 2 * splits * k <= product.depth))
    )


def _single(product: Product) -> OneRow:
    block_k = min(2048, next_power_of_two(product.depth))
    return OneRow(2, block_k, 8)


def _streamed(product: Product) -> FewRows:
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
