"""rms_norm.torch: torch's fused RMS norm."""

from __future__ import annotations

from torch.nn import functional

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats


def bind_rms_norm(call: BoundCall) -> Kernel:
    """Norm over the last dim of x [..., H]."""
    x, weight, y = call.tensor(0), call.tensor(1), call.outputs[0]
    shape, eps = list(weight.shape), call.number("eps")

    def run() -> None:
        y.copy_(functional.rms_norm(x, shape, weight, eps))

    return run


SPECS = (KernelSpec("rms_norm", "torch", bind_rms_norm, PORTABLE, floats("x", "weight")),)
