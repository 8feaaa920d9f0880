"""What CUDA solutions share: where they run, their limits, and how they name strides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tskernels.kernel import Capability, KernelQuery, Trait
from tskernels.launch import Operand

SHARED_BYTES: Final[Mapping[str, int]] = {
    "sm_80": 166_912,
    "sm_89": 101_376,
    "sm_90": 232_448,
    "sm_100": 232_448,
    "sm_103": 232_448,
    "sm_120": 101_376,
}
"""Shared memory that a block may have, by architecture; source: CUDA C++ Programming Guide, table
of technical specifications per compute capability, less the kilobyte that the system keeps."""

CUDA: Final = Capability("cuda", tuple(SHARED_BYTES))

HOPPER: Final = "sm_90"
"""The architecture that kernels in CUDA C++ are for."""

_WIDEST = 16_384


def _row_fits(query: KernelQuery) -> bool:
    shape = query.shapes[0]
    return shape is not None and shape[-1] <= _WIDEST


WIDEST_ROW: Final = Trait(f"takes rows of at most {_WIDEST}", _row_fits)


def strides(**operands: Operand) -> dict[str, int]:
    """`<name>_row` and `<name>_head` of each operand of two or three dims; of one dim both 0."""
    found: dict[str, int] = {}
    for name, operand in operands.items():
        leading = operand.strides[:-1]
        found[f"{name}_row"] = leading[0] if leading else 0
        found[f"{name}_head"] = leading[1] if len(leading) == 2 else 0
    return found
