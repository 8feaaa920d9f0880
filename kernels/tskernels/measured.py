"""Measured times of kernels that share a band, checked in; bench_kernels.py prints new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tskernels.kernel import KernelQuery

UNMEASURED = float("inf")

Curve: TypeAlias = tuple[tuple[int, float], ...]
"""(rows, time) pairs, rows ascending; each holds up to its number of rows, the last one beyond."""

TABLE: Mapping[tuple[str, str], Curve] = {
    ("linear.native", "x86_64"): ((1, 59.2), (4, 68.9), (8, 76.7), (16, 121), (32, 212), (64, 389)),
    ("linear.torch", "x86_64"): ((1, 68.2), (4, 159), (8, 192), (16, 264), (32, 309), (64, 499)),
}
"""Times by kernel and architecture, in one unit for all kernels of an op.

linear: milliseconds of one core (AMD Milan) for all 121 products of SmolLM2-135M, 538 MB of
weights. From 128 to 512 rows the two are within 6% of each other, which this table leaves out:
linear.native is then preferred for giving the same bits at any number of rows.
"""


def time(kernel: str, query: KernelQuery) -> float:
    """Measured time of `kernel` at the rows of the query's first input, else UNMEASURED."""
    curve = TABLE.get((kernel, query.arch), ())
    shape = query.shapes[0] if query.shapes else None
    if not curve or not shape:
        return UNMEASURED
    return next((t for rows, t in curve if shape[0] <= rows), curve[-1][1])
