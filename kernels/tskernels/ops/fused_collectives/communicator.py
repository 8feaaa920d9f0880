"""Fused collectives over the runtime's communicator: its call, and what is local before or after.

The summands are reduced in a buffer of rows that belongs to the kernel or is an output; the local
part is the add and norm kernels of torch, or in float32 the native ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from tskernels.communicator import Communicator
from tskernels.kernel import PERFORMANT, PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.ops.collectives.communicator import group_of
from tskernels.ops.fused import native as fused_native
from tskernels.ops.fused import torch as fused_torch
from tskernels.ops.norm import native as norm_native
from tskernels.ops.norm import torch as norm_torch
from tskernels.signatures import float32, floats

Bind: TypeAlias = Callable[[BoundCall], Kernel]


def _local(
    call: BoundCall, with_residual: Bind, alone: Bind, total: Tensor, normed: Tensor
) -> Kernel:
    """Add the residual to `total`, if there is one, and norm it into `normed`."""
    weight, residual, eps = call.tensor(1), call.inputs[2], {"eps": call.number("eps")}
    if residual is None:
        return alone(BoundCall((total, weight), (normed,), eps))
    return with_residual(BoundCall((total, residual, weight), (total, normed), eps))


def bind_all_reduce(with_residual: Bind, alone: Bind, call: BoundCall) -> Kernel:
    """Reduce in the first output, then add and norm there."""
    x, group = call.tensor(0), group_of(call)
    total, normed = call.outputs
    local = _local(call, with_residual, alone, total, normed)

    def run() -> None:
        total.copy_(x)
        group.all_reduce(total, "sum")
        local()

    return run


def bind_reduce_scatter(with_residual: Bind, alone: Bind, call: BoundCall) -> Kernel:
    """Reduce into this rank's rows of the sum, then add and norm them."""
    total, normed = call.outputs
    return fused_torch.in_turn(
        _scatter(call.tensor(0), total, group_of(call)),
        _local(call, with_residual, alone, total, normed),
    )


def bind_and_all_gather(with_residual: Bind, alone: Bind, call: BoundCall) -> Kernel:
    """The same, then one gather of the normed rows, and of the sum's where both are wanted."""
    group, (total, normed) = group_of(call), call.outputs
    rows, width = call.tensor(0).shape[0] // group.size, normed.shape[1]
    parts = normed.new_empty(1 + bool(call.attributes["both"]), rows, width)
    mine = parts[1] if len(parts) > 1 else total
    return fused_torch.in_turn(
        _scatter(call.tensor(0), mine, group),
        _local(call, with_residual, alone, mine, parts[0]),
        _gather(parts, (normed, total)[: len(parts)], group),
    )


def _scatter(x: Tensor, total: Tensor, group: Communicator) -> Kernel:
    blocks = torch.unflatten(x, 0, (group.size, total.shape[0]))

    def run() -> None:
        group.reduce_scatter(total, blocks.contiguous(), "sum")

    return run


def _gather(parts: Tensor, whole: tuple[Tensor, ...], group: Communicator) -> Kernel:
    """Every rank's `parts` [n, rows, H] into n tensors of all rows."""
    blocks = [y.view(group.size, 1, *parts.shape[1:]) for y in whole]
    staging = blocks[0] if len(blocks) == 1 else parts.new_empty(group.size, *parts.shape)

    def run() -> None:
        group.all_gather(staging, parts)
        if len(blocks) > 1:
            for i, block in enumerate(blocks):
                block.copy_(staging[:, i : i + 1])

    return run


_BINDS = {
    "all_reduce_add_rms_norm": bind_all_reduce,
    "reduce_scatter_add_rms_norm": bind_reduce_scatter,
    "reduce_scatter_add_rms_norm_all_gather": bind_and_all_gather,
}
_INPUTS = ("x", "weight", "residual")

SPECS = (
    *(
        KernelSpec(
            op,
            "communicator",
            partial(bind, fused_torch.bind_add_rms_norm, norm_torch.bind_rms_norm),
            PORTABLE,
            floats(*_INPUTS),
        )
        for op, bind in _BINDS.items()
    ),
    *(
        KernelSpec(
            op,
            "native",
            partial(bind, fused_native.bind_add_rms_norm, norm_native.bind_rms_norm),
            PERFORMANT,
            float32(*_INPUTS),
        )
        for op, bind in _BINDS.items()
    ),
)
