"""Block sizes of the attention kernels, by the sizes of the call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tskernels.launch import next_power_of_two
from tskernels.schema import DType
from tskernels.tuning.table import table

_BLOCKS_WANTED = 512
"""Blocks of a decode launch: some for each multiprocessor, so that they share out evenly."""
_MOST_SPLITS = 32
_MOST_JOINED = 16_384
"""Numbers that one block joins in registers."""


@dataclass(frozen=True, slots=True)
class Heads:
    """What an attention reads and asks: `rows` of query (one a sequence in decode) and heads."""

    rows: int
    kv_heads: int
    group: int
    width: int
    dtype: DType

    @property
    def decode_key(self) -> str:
        """Name of one row a sequence in tuning tables."""
        return f"decode {self.dtype} {self.rows}x{self.kv_heads}x{self.group}x{self.width}"

    @property
    def rows_key(self) -> str:
        """Name of many rows in tuning tables, where their number does not matter."""
        return f"rows {self.dtype} {self.kv_heads * self.group}x{self.width}"


@dataclass(frozen=True, slots=True)
class Decode:
    """The keys of a sequence and key head are shared out among up to `splits` blocks."""

    splits: int
    block_t: int
    num_warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A block has `block_m` rows of one query head, and `block_t` keys at a time."""

    block_m: int
    block_t: int
    num_warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Units:
    """`blocks` blocks share out all sequences' keys evenly, 64 a unit; Hopper's.

    Each fetches its units through a ring of `stages` in shared memory.
    """

    blocks: int
    stages: int

    def shared_bytes(self, heads: Heads) -> int:
        """Of the ring, what comes before it, and the sums of four warps."""
        stage = 2 * UNIT * heads.width * heads.dtype.itemsize
        return _BEFORE_RING + self.stages * stage + 4 * heads.group * (heads.width + 2) * 4


UNIT = 64
"""Keys that a stage of the ring holds."""

_BEFORE_RING = 5120
"""Bytes of barriers and of the units of each sequence, and to begin at a multiple of 1,024."""

_FEWEST_ITEMS = 64
_UNIT_BLOCKS = 256
"""Two a multiprocessor; a power of two shares out sequences of one length without a rest."""
_UNIT_BYTES = 32_768
"""Of keys on their way in a block's ring, and as many of values."""

Shares: TypeAlias = Decode | Units
"""How the keys of sequences with one row are shared out among blocks."""


def shares(heads: Heads, arch: str, *, by_units: bool) -> Shares:
    """How a decode step shares out keys; `by_units` says whether Hopper's kernel takes the call.

    In equal units from so many key heads of sequences on that it is faster, or as fast; where
    lengths differ it is far faster (docs/performance.md).
    """
    if by_units and heads.rows * heads.kv_heads >= _FEWEST_ITEMS:
        return Units(_UNIT_BLOCKS, _UNIT_BYTES // (UNIT * heads.width * heads.dtype.itemsize))
    return decode(heads, arch)


def decode(heads: Heads, arch: str) -> Decode:
    """Block sizes for one row a sequence by splits: as measured on `arch`, else by rule."""
    measured = table(arch).get(heads.decode_key)
    if measured is not None:
        return Decode(**measured.config)
    wanted = next_power_of_two(_BLOCKS_WANTED // (heads.rows * heads.kv_heads))
    splits = max(1, min(wanted, most_splits(heads)))
    wide = heads.dtype is DType.FLOAT32
    return Decode(splits, 32 if wide else 64, 4, 2 if wide else 3)


def rows(heads: Heads, arch: str) -> Rows:
    """Block sizes for any rows: as measured on `arch`, else by rule."""
    measured = table(arch).get(heads.rows_key)
    if measured is not None and heads.rows >= measured.config["block_m"]:
        return Rows(**measured.config)
    wide = heads.dtype is DType.FLOAT32
    block_m = max(16, min(32 if wide else 128, next_power_of_two(heads.rows)))
    return Rows(block_m, 32 if wide else 64, 8 if block_m == 128 else 4, 2 if wide else 3)


def most_splits(heads: Heads) -> int:
    """Blocks whose sums one block can join."""
    size = next_power_of_two(heads.group) * next_power_of_two(heads.width)
    return max(1, min(_MOST_SPLITS, _MOST_JOINED // size))


def takes_units(heads: Heads, page_size: int, sequences: int) -> bool:
    """Whether Hopper's kernel takes such a call: its rows, pages and number of sequences."""
    return (
        heads.dtype is not DType.FLOAT32
        and heads.width in (64, 128)
        and heads.group <= _MOST_GROUPED
        and page_size >= _SMALLEST_PAGE
        and page_size == next_power_of_two(page_size)
        and sequences <= _MOST_SEQUENCES
    )


_MOST_GROUPED = 8
"""Query heads of a key head: rows of which the matrix units take one tile's half."""
_SMALLEST_PAGE = 8
"""Keys of a page, so that the copy engine's boxes begin where eight lines do."""
_MOST_SEQUENCES = 480
"""Sequences whose units have room before the ring."""


def decode_candidates(heads: Heads) -> Iterator[Decode]:
    """All block sizes worth measuring for one row a sequence of two-byte numbers."""
    for splits, (block_t, warps), stages in itertools.product(
        (1, 2, 4, 8, 16, 32), ((32, 2), (64, 4), (128, 4), (128, 8)), (2, 3, 4)
    ):
        blocks = heads.rows * heads.kv_heads * splits
        if splits <= most_splits(heads) and 128 <= blocks <= 1024:
            yield Decode(splits, block_t, warps, stages)


def rows_candidates() -> Iterator[Rows]:
    """All block sizes worth measuring for many rows of two-byte numbers."""
    for block_m, block_t, warps, stages in itertools.product(
        (64, 128), (64, 128), (4, 8), (2, 3, 4)
    ):
        yield Rows(block_m, block_t, warps, stages)
