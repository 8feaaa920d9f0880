"""rotary_table.triton and rotary.triton."""

from __future__ import annotations

from tskernels.capabilities import CUDA, strides
from tskernels.kernel import PORTABLE, KernelSpec, compiled
from tskernels.launch import CallLayout, LaunchBuilder, LaunchPlan, next_power_of_two
from tskernels.signatures import device_floats, float32, indices

MODULE = "tskernels.ops.rotary.triton"


def plan_rotary_table(call: CallLayout) -> LaunchPlan:
    """Cosines and sines of positions [T] x inv_freq [D/2], into [T, D]."""
    builder, y = LaunchBuilder(MODULE, call), call.outputs[0]
    half = y.shape[1] // 2
    launch = builder.launch(
        "rotary_table",
        (y.shape[0],),
        (*builder.inputs(0, 1), *builder.outputs(0)),
        num_warps=1,
        half=half,
        scale=call.number("scale"),
        y_row=y.strides[0],
        block=next_power_of_two(half),
    )
    return LaunchPlan((launch,))


def plan_rotary(call: CallLayout) -> LaunchPlan:
    """Rotate the pairs of x [T, h, Dx] by table [T, D]; the rest passes through."""
    builder, x, table, y = (
        LaunchBuilder(MODULE, call),
        call.input(0),
        call.input(1),
        call.outputs[0],
    )
    width, turned = x.shape[2], table.shape[1]
    launch = builder.launch(
        "rotary",
        (x.shape[0], x.shape[1]),
        (*builder.inputs(0, 1), *builder.outputs(0)),
        num_warps=1,
        width=width,
        turned=turned,
        interleaved=call.flag("interleaved"),
        **strides(x=x),
        table_row=table.strides[0],
        **strides(y=y),
        block=next_power_of_two(turned // 2),
        tail=tail_block(width, turned),
    )
    return LaunchPlan((launch,))


def tail_block(width: int, turned: int) -> int:
    """Block that holds what is not turned of a head; 0 where all is."""
    return next_power_of_two(width - turned) if turned < width else 0


SPECS = (
    KernelSpec(
        "rotary_table",
        "triton",
        compiled,
        PORTABLE,
        {**indices("positions"), **float32("inv_freq")},
        CUDA,
        launches=plan_rotary_table,
    ),
    KernelSpec(
        "rotary",
        "triton",
        compiled,
        PORTABLE,
        {**device_floats("x"), **float32("table")},
        CUDA,
        launches=plan_rotary,
    ),
)
