"""Measured times of kernels that share a band, checked in; bench_kernels.py prints new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tskernels.kernel import KernelQuery

UNMEASURED = float("inf")

Curve: TypeAlias = tuple[tuple[int, float], ...]
"""(rows, time) pairs, rows ascending; each holds up to its number of rows, the last one beyond."""

TABLE: Mapping[tuple[str, str], Curve] = {}
"""Times by kernel and architecture, in one unit for all kernels of an op."""


def time(kernel: str, query: KernelQuery) -> float:
    """Measured time of `kernel` at the rows of the query's first input, else UNMEASURED."""
    curve = TABLE.get((kernel, query.arch), ())
    shape = query.shapes[0] if query.shapes else None
    if not curve or not shape:
        return UNMEASURED
    return next((t for rows, t in curve if shape[0] <= rows), curve[-1][1])
