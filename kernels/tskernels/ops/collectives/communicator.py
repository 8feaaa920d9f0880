"""Collectives over the runtime's communicator: they arrange the buffers around its calls.

The communicator concatenates along a new leading dim; another dim takes a copy on either side.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from tskernels.communicator import Communicator
from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats, movable


def bind_all_reduce(call: BoundCall) -> Kernel:
    """Copy x into the output and reduce it there."""
    x, y = call.tensor(0), call.outputs[0]
    group, reduce = group_of(call), cast("str", call.attributes["reduce"])

    def run() -> None:
        y.copy_(x)
        group.all_reduce(y, reduce)

    return run


def bind_all_gather(call: BoundCall) -> Kernel:
    """Gather shards along `dim`: straight into the output where that is dim 0."""
    x, y, group = call.tensor(0), call.outputs[0], group_of(call)
    blocks = _blocks(y, call.integer("dim"), group.size)
    staging = blocks if blocks.is_contiguous() else y.new_empty(blocks.shape)

    def run() -> None:
        group.all_gather(staging, x.contiguous())
        if staging is not blocks:
            blocks.copy_(staging)

    return run


def bind_reduce_scatter(call: BoundCall) -> Kernel:
    """Reduce x and keep this coordinate's part of `dim`."""
    y, group = call.outputs[0], group_of(call)
    blocks = _blocks(call.tensor(0), call.integer("dim"), group.size)
    reduce = cast("str", call.attributes["reduce"])

    def run() -> None:
        group.reduce_scatter(y, blocks.contiguous(), reduce)

    return run


def bind_all_to_all(call: BoundCall) -> Kernel:
    """Cut along `split_dim`, exchange, concatenate along `concat_dim`."""
    y, group = call.outputs[0], group_of(call)
    sent = _blocks(call.tensor(0), call.integer("split_dim"), group.size)
    received = _blocks(y, call.integer("concat_dim"), group.size)
    staging = y.new_empty(received.shape)

    def run() -> None:
        group.all_to_all(staging, sent.contiguous())
        received.copy_(staging)

    return run


def group_of(call: BoundCall) -> Communicator:
    """The communicator of a call; TypeError where it is missing or of another size."""
    if call.communicator is None:
        raise TypeError("a collective is bound without its communicator")
    if call.communicator.size != call.attributes["size"]:
        raise TypeError(
            f"a collective over {call.attributes['size']} ranks is bound to a communicator of "
            f"{call.communicator.size}"
        )
    return call.communicator


def _blocks(x: Tensor, dim: int, size: int) -> Tensor:
    """View x [..., size * n, ...] as [size, ..., n, ...], block i holding entries i*n on."""
    dim %= x.dim()
    return torch.unflatten(x, dim, (size, x.shape[dim] // size)).movedim(dim, 0)


SPECS = (
    KernelSpec("all_reduce", "communicator", bind_all_reduce, PORTABLE, floats("x")),
    KernelSpec("all_gather", "communicator", bind_all_gather, PORTABLE, movable("x")),
    KernelSpec("reduce_scatter", "communicator", bind_reduce_scatter, PORTABLE, floats("x")),
    KernelSpec("all_to_all", "communicator", bind_all_to_all, PORTABLE, movable("x")),
)
