"""rms_norm.native."""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import address, extent, grid, strides
from tskernels.signatures import float32


def bind_rms_norm(call: BoundCall) -> Kernel:
    """Norm over the last dim of x [..., H]."""
    x, weight, y = grid(call.tensor(0)), call.tensor(1), grid(call.outputs[0])
    return _cpu.rms_norm(
        address(x),
        strides(x),
        address(grid(weight)),
        address(y),
        strides(y),
        shape=extent(x),
        eps=call.number("eps"),
        keep=(x, weight, y),
    )


SPECS = (KernelSpec("rms_norm", "native", bind_rms_norm, PERFORMANT, float32("x", "weight")),)
