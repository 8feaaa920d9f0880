"""Rings in shared memory, through which Hopper's products of few rows stream their weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tskernels.capabilities import HOPPER, SHARED_BYTES
from tskernels.ops.linear.product import LINE, MOST_LINES, MOST_ROWS, Product, block_of
from tskernels.schema import DType

ROW_BLOCK = 64
"""Rows of the weight that four warps multiply at once on Hopper."""

_MOST_ROW_BLOCKS = 7
"""Those whose warps, with the one that feeds the ring, have room in a block of 1,024 threads."""

_BARRIERS = 1024
"""Bytes before a ring, and at most as many for it to begin at a multiple of them."""

_MULTIPROCESSORS = 132
"""Of an H200, each of which has one block with a ring."""


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


def ring_candidates(product: Product) -> Iterator[Ring]:
    """Rings of 8, 12 or as many stages as fit, whose blocks fill the GPU about once.

    None for rows that `Lines` takes: as fast alone, they lose in a step (docs/performance.md).
    """
    if product.rows <= MOST_LINES:
        return
    for row_blocks, splits in itertools.product(range(1, _MOST_ROW_BLOCKS + 1), (1, 2, 4)):
        blocks = Ring(row_blocks, 1, splits).blocks(product)
        tiles = max(1, -(-blocks // _MULTIPROCESSORS))
        for config in _rings(row_blocks, splits, tiles, block_of(product.rows)):
            if config.blocks(product) >= _MULTIPROCESSORS // 2 and ring_takes(product, config):
                yield config


def _rings(row_blocks: int, splits: int, tiles: int, rows: int) -> Iterator[Ring]:
    least = Ring(row_blocks, 1, splits, tiles)
    room = SHARED_BYTES[HOPPER] - least.shared_bytes(rows)
    most = 1 + room // least.ring_bytes(rows)
    for stages in sorted({min(8, most), min(12, most), most}):
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
