"""The products that the tuning table of Hopper speaks of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tskernels.ops.linear.product import Product
from tskernels.schema import DType
from tskernels.tuning.table import table

_KEY = re.compile(r"(scaled_)?linear(_silu_mul)? (\w+) (\d+)x(\d+)x(\d+)")
_BLOCK = (128, 128)


def measured(chosen: Callable[[Mapping[str, int]], bool]) -> list[Product]:
    """Those whose block sizes are `chosen`; scaled ones have a scale for 128 x 128 weights."""
    found: list[Product] = []
    for key, entry in table("sm_90").items():
        match = _KEY.fullmatch(key)
        if match is not None and chosen(entry.config):
            scaled, gated, dtype, *sizes = match.groups()
            rows, columns, depth = map(int, sizes)
            block = _BLOCK if scaled else None
            found.append(Product(rows, columns, depth, DType(dtype), gated is not None, block))
    return found
