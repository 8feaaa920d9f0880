"""References of dispatch and combine.

Destination d of an exchange over `ranks` ranks holds the experts first + d * step to
first + d * step + held - 1. Capacity is static: a block of all T rows for each destination, each
row in its own place, so that none is ever dropped. A row that no expert of a destination wants is
zero in its block and has no id there: a backend may leave it out of what it sends.
"""

from __future__ import annotations

import torch
from torch import Tensor


def dispatch(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    *,
    ranks: int,
    step: int,
    held: int,
    first: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, ids and weights for each destination in turn: [ranks * T, H], [ranks * T, k] twice.

    x [T, H]; ids [T, k] int32 and weights [T, k] as `route` gives them. A block keeps the ids of
    its destination's experts; the others become -1, their weights 0.
    """
    wanted = _wanted(ids, ranks, first, step, held)
    rows = torch.where(wanted.any(2, keepdim=True), x, x.new_zeros(()))
    kept = torch.where(wanted, ids, ids.new_full((), -1))
    shares = torch.where(wanted, weights, weights.new_zeros(()))
    return rows.flatten(0, 1), kept.flatten(0, 1), shares.flatten(0, 1)


def combine(y: Tensor, ids: Tensor, *, ranks: int, step: int, held: int, first: int = 0) -> Tensor:
    """The sum of what the destinations' experts made of each row: y [ranks * T, H] to [T, H].

    A block's row counts only where its destination was sent that row. Summed in float32 (float64
    for float64), in the order of the destinations.
    """
    wide = torch.promote_types(y.dtype, torch.float32)
    wanted = _wanted(ids, ranks, first, step, held).any(2)
    total = y.new_zeros(ids.shape[0], y.shape[1], dtype=wide)
    for block, sent in zip(y.chunk(ranks), wanted, strict=True):
        total += block.to(wide).masked_fill(~sent.unsqueeze(1), 0.0)
    return total.to(y.dtype)


def _wanted(ids: Tensor, ranks: int, first: int, step: int, held: int) -> Tensor:
    """[ranks, T, k]: whether an id is one of a destination's experts."""
    starts = (first + step * torch.arange(ranks)).view(-1, 1, 1)
    return (ids >= starts) & (ids < starts + held)
