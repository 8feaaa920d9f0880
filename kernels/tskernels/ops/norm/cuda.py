"""rms_norm.triton: a block of threads for each row of a head."""

from __future__ import annotations

from tskernels.capabilities import CUDA, WIDEST_ROW, strides
from tskernels.kernel import PORTABLE, KernelSpec, compiled
from tskernels.launch import CallLayout, LaunchBuilder, LaunchPlan, next_power_of_two
from tskernels.signatures import device_floats

MODULE = "tskernels.ops.norm.triton"


def plan_rms_norm(call: CallLayout) -> LaunchPlan:
    """Norm over the last dim of x [..., H]."""
    builder, x, y = LaunchBuilder(MODULE, call), call.input(0), call.outputs[0]
    width = x.shape[-1]
    launch = builder.launch(
        "rms_norm",
        (x.shape[0], x.shape[1] if len(x.shape) == 3 else 1),
        (*builder.inputs(0, 1), *builder.outputs(0)),
        num_warps=norm_warps(width),
        width=width,
        **strides(x=x, y=y),
        eps=call.number("eps"),
        block=next_power_of_two(width),
    )
    return LaunchPlan((launch,))


def norm_warps(width: int) -> int:
    """Warps of a block whose threads hold up to 8 numbers of a row each, or a few more."""
    return max(1, min(16, next_power_of_two(width) // 256))


SPECS = (
    KernelSpec(
        "rms_norm",
        "triton",
        compiled,
        PORTABLE,
        device_floats("x", "weight"),
        CUDA,
        traits=(WIDEST_ROW,),
        launches=plan_rms_norm,
    ),
)
