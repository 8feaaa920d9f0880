"""dispatch.torch and combine.torch: masked copies, a block at a time."""

from __future__ import annotations

import torch

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats, indices


def bind_dispatch(call: BoundCall) -> Kernel:
    """Copy rows, ids and weights into each destination's block, blank where it wants none."""
    x, ids, weights = (call.tensor(i) for i in range(3))
    ranks = call.integer("ranks")
    blocks = list(zip(*(out.chunk(ranks) for out in call.outputs), _ranges(call), strict=True))

    def run() -> None:
        for rows, kept, shares, (low, high) in blocks:
            other = (ids < low) | (ids >= high)
            kept.copy_(ids).masked_fill_(other, -1)
            shares.copy_(weights).masked_fill_(other, 0.0)
            rows.copy_(x).masked_fill_(other.all(1, keepdim=True), 0.0)

    return run


def bind_combine(call: BoundCall) -> Kernel:
    """Add the blocks' rows that were sent."""
    y, ids, out = call.tensor(0), call.tensor(1), call.outputs[0]
    blocks = list(zip(y.chunk(call.integer("ranks")), _ranges(call), strict=True))
    wide = torch.promote_types(y.dtype, torch.float32)
    total = out if out.dtype == wide else out.new_empty(out.shape, dtype=wide)

    def run() -> None:
        total.zero_()
        for block, (low, high) in blocks:
            sent = ((ids >= low) & (ids < high)).any(1).nonzero().flatten()
            total.index_add_(0, sent, block[sent].to(wide))
        if total is not out:
            out.copy_(total)

    return run


def _ranges(call: BoundCall) -> list[tuple[int, int]]:
    """First expert and the one behind the last of each destination."""
    first, step, held = (call.integer(name) for name in ("first", "step", "held"))
    starts = [first + d * step for d in range(call.integer("ranks"))]
    return [(start, start + held) for start in starts]


SPECS = (
    KernelSpec(
        "dispatch", "torch", bind_dispatch, PORTABLE, {**floats("x", "weights"), **indices("ids")}
    ),
    KernelSpec("combine", "torch", bind_combine, PORTABLE, {**floats("y"), **indices("ids")}),
)
