"""A kernel plug-in: what a package declares under the entry-point group `tscompile.kernels`.

[project.entry-points."tscompile.kernels"]
example = "ts_example_kernels:register"
"""

from __future__ import annotations

from tskernels.kernel import PLUGIN, BoundCall, Kernel, KernelSpec
from tskernels.registry import Registry
from tskernels.schema import DType


def bind_add(call: BoundCall) -> Kernel:
    """Sum of two tensors, in place of the built-in one."""
    a, b, y = call.tensor(0), call.tensor(1), call.outputs[0]

    def run() -> None:
        y.copy_(a).add_(b)

    return run


def register(registry: Registry) -> None:
    """Called once, by the compiler."""
    signature = {"a": (DType.FLOAT32,), "b": (DType.FLOAT32,)}
    registry.register(KernelSpec("add", "example", bind_add, PLUGIN, signature))
