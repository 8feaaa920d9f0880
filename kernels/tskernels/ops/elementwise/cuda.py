"""add.triton and silu_mul.triton."""

from __future__ import annotations

from functools import partial
from math import prod

from tskernels.capabilities import CUDA, strides
from tskernels.kernel import PORTABLE, KernelSpec, compiled
from tskernels.launch import CallLayout, LaunchBuilder, LaunchPlan, next_power_of_two
from tskernels.signatures import device_floats

MODULE = "tskernels.ops.elementwise.triton"
_BLOCK = 1024


def plan_binary(operation: str, call: CallLayout) -> LaunchPlan:
    """`operation` of two tensors of one shape: `add` or `silu_mul`."""
    builder, a, b, y = LaunchBuilder(MODULE, call), call.input(0), call.input(1), call.outputs[0]
    width = a.shape[-1]
    block = min(_BLOCK, next_power_of_two(width))
    launch = builder.launch(
        "binary",
        (prod(a.shape[:-1]), -(-width // block)),
        (*builder.inputs(0, 1), *builder.outputs(0)),
        operation=operation,
        width=width,
        heads=a.shape[1] if len(a.shape) == 3 else 1,
        **strides(a=a, b=b, y=y),
        block=block,
    )
    return LaunchPlan((launch,))


SPECS = (
    KernelSpec(
        "add",
        "triton",
        compiled,
        PORTABLE,
        device_floats("a", "b"),
        CUDA,
        launches=partial(plan_binary, "add"),
    ),
    KernelSpec(
        "silu_mul",
        "triton",
        compiled,
        PORTABLE,
        device_floats("gate", "up"),
        CUDA,
        launches=partial(plan_binary, "silu_mul"),
    ),
)
