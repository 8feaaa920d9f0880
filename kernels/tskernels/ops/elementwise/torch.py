"""add.torch and silu_mul.torch."""

from __future__ import annotations

import torch
from torch.nn import functional

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats


def bind_add(call: BoundCall) -> Kernel:
    """Sum of two tensors of one shape."""
    a, b, y = call.tensor(0), call.tensor(1), call.outputs[0]

    def run() -> None:
        torch.add(a, b, out=y)

    return run


def bind_silu_mul(call: BoundCall) -> Kernel:
    """silu(gate) * up, both [T, F]."""
    gate, up, y = call.tensor(0), call.tensor(1), call.outputs[0]

    def run() -> None:
        torch.mul(functional.silu(gate), up, out=y)

    return run


SPECS = (
    KernelSpec("add", "torch", bind_add, PORTABLE, floats("a", "b")),
    KernelSpec("silu_mul", "torch", bind_silu_mul, PORTABLE, floats("gate", "up")),
)
