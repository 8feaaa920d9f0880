"""linear.native: streams the weight once at the speed of memory, whatever the rows of x.

A row's result does not depend on the rows beside it, bit for bit.
"""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import grid
from tskernels.signatures import float32


def bind_linear(call: BoundCall) -> Kernel:
    """X [T, K] times the transposed weight [N, K], plus the bias [N] if there is one."""
    x, weight, y = grid(call.tensor(0)), grid(call.tensor(1)), grid(call.outputs[0])
    bias = call.inputs[2]
    return _cpu.linear(
        x.address,
        x.strides[0],
        weight.address,
        weight.strides[0],
        0 if bias is None else grid(bias).address,
        y.address,
        y.strides[0],
        shape=(x.extent[0], weight.extent[0], weight.extent[2]),
        keep=call,
    )


SPECS = (KernelSpec("linear", "native", bind_linear, PERFORMANT, float32("x", "weight", "bias")),)
