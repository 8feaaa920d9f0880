"""linear.torch: torch's matrix product, which on x86-64 is MKL."""

from __future__ import annotations

import torch

from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats


def bind_linear(call: BoundCall) -> Kernel:
    """X [T, K] times the transposed weight [N, K], plus the bias [N] if there is one."""
    x, transposed, bias, y = call.tensor(0), call.tensor(1).t(), call.inputs[2], call.outputs[0]

    def run() -> None:
        if bias is None:
            torch.mm(x, transposed, out=y)
        else:
            torch.addmm(bias, x, transposed, out=y)

    return run


SPECS = (KernelSpec("linear", "torch", bind_linear, PERFORMANT, floats("x", "weight", "bias")),)
