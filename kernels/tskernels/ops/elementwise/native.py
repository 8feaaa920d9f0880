"""add.native and silu_mul.native."""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import grid
from tskernels.signatures import float32


def bind_add(call: BoundCall) -> Kernel:
    """Sum of two tensors of one shape."""
    a, b, y = grid(call.tensor(0)), grid(call.tensor(1)), grid(call.outputs[0])
    return _cpu.add(
        a.address, a.strides, b.address, b.strides, y.address, y.strides, a.extent, keep=call
    )


def bind_silu_mul(call: BoundCall) -> Kernel:
    """silu(gate) * up, both [T, F]."""
    a, b, y = grid(call.tensor(0)), grid(call.tensor(1)), grid(call.outputs[0])
    return _cpu.silu_mul(
        a.address, a.strides, b.address, b.strides, y.address, y.strides, a.extent, keep=call
    )


SPECS = (
    KernelSpec("add", "native", bind_add, PERFORMANT, float32("a", "b")),
    KernelSpec("silu_mul", "native", bind_silu_mul, PERFORMANT, float32("gate", "up")),
)
