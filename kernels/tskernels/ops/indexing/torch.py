"""select_rows.torch, mask.torch, slice.torch and permute.torch."""

from __future__ import annotations

from typing import cast

import torch

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats, indices, movable


def bind_select_rows(call: BoundCall) -> Kernel:
    """Gather rows of x [T, H]."""
    x, rows, y = call.tensor(0), call.tensor(1), call.outputs[0]

    def run() -> None:
        torch.index_select(x, 0, rows, out=y)

    return run


def bind_mask(call: BoundCall) -> Kernel:
    """Copy x on coordinate 0, write zeros elsewhere."""
    x, y = call.tensor(0), call.outputs[0]
    keep = call.attributes["coordinate"] == 0

    def run() -> None:
        if keep:
            y.copy_(x)
        else:
            y.zero_()

    return run


def bind_slice(call: BoundCall) -> Kernel:
    """Copy a range of one dim."""
    y = call.outputs[0]
    dim, start, size = (call.integer(name) for name in ("dim", "start", "size"))
    part = call.tensor(0).narrow(dim, start, size)

    def run() -> None:
        y.copy_(part)

    return run


def bind_permute(call: BoundCall) -> Kernel:
    """Copy blocks of one dim in another order."""
    x, y = call.tensor(0), call.outputs[0]
    dim = call.integer("dim") % x.dim()
    sizes = cast("tuple[int, ...]", call.attributes["sizes"])
    order = cast("tuple[int, ...]", call.attributes["order"])
    rank = x.dim() - 1 + len(sizes)
    moved = [*range(dim), *(dim + i for i in order), *range(dim + len(sizes), rank)]
    source = torch.unflatten(x, dim, sizes).permute(moved)
    target = torch.unflatten(y, dim, tuple(sizes[i] for i in order))

    def run() -> None:
        target.copy_(source)

    return run


SPECS = (
    KernelSpec(
        "select_rows", "torch", bind_select_rows, PORTABLE, {**floats("x"), **indices("rows")}
    ),
    KernelSpec("mask", "torch", bind_mask, PORTABLE, floats("x")),
    KernelSpec("slice", "torch", bind_slice, PORTABLE, movable("x")),
    KernelSpec("permute", "torch", bind_permute, PORTABLE, movable("x")),
)
