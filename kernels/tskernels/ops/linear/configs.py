"""Block sizes of the linear kernels, by the sizes of the product."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tskernels.capabilities import HOPPER, SHARED_BYTES
from tskernels.launch import next_power_of_two
from tskernels.schema import DType
from tskernels.tuning.table import table

_SMALLEST_DOT = 16
"""Rows of the smallest product that the matrix units take."""

MOST_ROWS = 64
"""Rows up to which the streaming kernels hold all of x at once."""

MOST_LINES = 8
"""Rows of x that the matrix units take as one operand, which `Lines` may have."""

LINE = 128
"""Bytes of a line of memory, of which a step of `Lines` reads two in each row."""

ROW_BLOCK = 64
"""Rows of the weight that four warps multiply at once on Hopper."""


@dataclass(frozen=True, slots=True)
class Product:
    """x [rows, depth] times weight.T, to [rows, columns]; `gated` weights have twice the rows.

    `block` has the rows and columns that share a scale, of a weight in e4m3; None for a plain one.
    """

    rows: int
    columns: int
    depth: int
    dtype: DType
    gated: bool
    block: tuple[int, int] | None = None

    @property
    def weight_bytes(self) -> int:
        """Bytes of a number of the weight."""
        return 1 if self.block else self.dtype.itemsize

    @property
    def key(self) -> str:
        """Name in tuning tables; of few rows only the block that holds them counts."""
        rows = self.rows if self.rows == 1 else max(MOST_LINES, next_power_of_two(self.rows))
        kind = ("scaled_" if self.block else "") + ("linear_silu_mul" if self.gated else "linear")
        return f"{kind} {self.dtype} {rows}x{self.columns}x{self.depth}"


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
class Ring:
    """A block streams `row_blocks` times 64 rows of the weight through a ring of `stages`.

    It has one of `splits` slices of the depth, which a cluster of as many blocks adds up, or up to
    `tiles` such row blocks one after another. Hopper's.
    """

    row_blocks: int
    stages: int
    splits: int
    tiles: int = 1

    def columns(self, *, gated: bool) -> int:
        """Columns of the product that a tile has."""
        return ROW_BLOCK * self.row_blocks // (2 if gated else 1)

    @property
    def num_warps(self) -> int:
        """Four to multiply each row block, and one that feeds the ring."""
        return 4 * self.row_blocks + 1

    def blocks(self, product: Product) -> int:
        """Of the grid."""
        tiles = product.columns // self.columns(gated=product.gated)
        return -(-tiles // self.tiles) * self.splits

    def ring_bytes(self, rows: int) -> int:
        """Of stages that hold lines of the weight and of `rows` of x."""
        return self.stages * (ROW_BLOCK * self.row_blocks + rows) * LINE

    def sums_bytes(self, rows: int) -> int:
        """Of a tile's sums, which take the ring's place where there is no other tile to come."""
        return rows * (ROW_BLOCK * self.row_blocks + 4) * 4

    def shared_bytes(self, rows: int) -> int:
        """All that a block needs for `rows` of x, barriers and what it begins after included."""
        after = self.sums_bytes(rows) if self.tiles > 1 else 0
        return 2 * _BARRIERS + self.ring_bytes(rows) + after


@dataclass(frozen=True, slots=True)
class ManyRows:
    """A block computes a tile; `group` tiles down share their columns of the weight in L2."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    stages: int
    group: int = 8


_BARRIERS = 1024
"""Bytes before a ring, and at most as many for it to begin at a multiple of them."""

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


def block_of(rows: int) -> int:
    """Rows of x as the matrix units take them, of at most `MOST_ROWS`."""
    return max(_SMALLEST_DOT, next_power_of_two(rows))


def ring_candidates(product: Product) -> Iterator[Ring]:
    """Rings of eight stages or as many as fit, whose blocks fill the GPU about once."""
    for row_blocks, splits in itertools.product((1, 2, 3, 4, 7), (1, 2, 4)):
        blocks = Ring(row_blocks, 1, splits).blocks(product)
        tiles = -(-blocks // _MULTIPROCESSORS)
        for config in _rings(row_blocks, splits, tiles, block_of(product.rows)):
            if config.blocks(product) >= _MULTIPROCESSORS // 2 and ring_takes(product, config):
                yield config


def _rings(row_blocks: int, splits: int, tiles: int, rows: int) -> Iterator[Ring]:
    least = Ring(row_blocks, 1, splits, tiles)
    room = SHARED_BYTES[HOPPER] - least.shared_bytes(rows)
    most = min(12, 1 + room // least.ring_bytes(rows))
    for stages in sorted({min(8, most), most}):
        yield Ring(row_blocks, stages, splits, tiles)


def ring_takes(product: Product, config: Ring) -> bool:
    """Whether blocks and steps of `config` come out even, as they must, and its sums have room."""
    block_m = block_of(product.rows)
    roomy = config.tiles > 1 or config.sums_bytes(block_m) <= config.ring_bytes(block_m)
    return (
        product.dtype is not DType.FLOAT32
        and product.rows <= MOST_ROWS
        and product.columns % config.columns(gated=product.gated) == 0
        and product.depth % (config.splits * ROW_BLOCK) == 0
        and (config.tiles == 1 or config.splits == 1)
        and roomy
        and config.shared_bytes(block_m) <= SHARED_BYTES[HOPPER]
    )


_MULTIPROCESSORS = 132
"""Of an H200, each of which has one block with a ring."""


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
