"""The sizes of a product, by which its block sizes are chosen."""

from __future__ import annotations

from dataclasses import dataclass

from tskernels.launch import next_power_of_two
from tskernels.schema import DType

_SMALLEST_DOT = 16
"""Rows of the smallest product that the matrix units take."""

MOST_ROWS = 64
"""Rows up to which the streaming kernels hold all of x at once."""

MOST_LINES = 8
"""Rows of x that the matrix units take as one operand, which `Lines` may have."""

LINE = 128
"""Bytes of a line of memory."""


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


def block_of(rows: int) -> int:
    """Rows of x as the matrix units take them, of at most `MOST_ROWS`."""
    return max(_SMALLEST_DOT, next_power_of_two(rows))
