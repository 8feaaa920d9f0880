"""rms_norm.native."""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import grid
from tskernels.signatures import float32


def bind_rms_norm(call: BoundCall) -> Kernel:
    """Norm over the last dim of x [..., H]."""
    x, weight, y = grid(call.tensor(0)), grid(call.tensor(1)), grid(call.outputs[0])
    return _cpu.rms_norm(
        x.address,
        x.strides,
        weight.address,
        y.address,
        y.strides,
        shape=x.extent,
        eps=call.number("eps"),
        keep=call,
    )


SPECS = (KernelSpec("rms_norm", "native", bind_rms_norm, PERFORMANT, float32("x", "weight")),)
