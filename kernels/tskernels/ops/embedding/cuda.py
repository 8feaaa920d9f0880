"""embedding.triton: one gather of rows."""

from __future__ import annotations

from tskernels.capabilities import CUDA
from tskernels.kernel import PORTABLE, KernelSpec, compiled
from tskernels.launch import CallLayout, Launch, LaunchBuilder, LaunchPlan, next_power_of_two
from tskernels.signatures import device_floats, indices

MODULE = "tskernels.ops.embedding.triton"
_BLOCK = 1024


def plan_embedding(call: CallLayout) -> LaunchPlan:
    """Rows of the shard; zeros for ids outside it."""
    return LaunchPlan((gather(call, rows=0, x=1, first=call.integer("vocab_start")),))


def gather(call: CallLayout, *, rows: int, x: int, first: int) -> Launch:
    """The launch that gathers the rows named by input `rows`, less `first`, of input `x`."""
    builder, source, y = LaunchBuilder(MODULE, call), call.input(x), call.outputs[0]
    count, width = source.shape
    block = min(_BLOCK, next_power_of_two(width))
    return builder.launch(
        "gather_rows",
        (y.shape[0], -(-width // block)),
        (*builder.inputs(rows, x), *builder.outputs(0)),
        first=first,
        count=count,
        width=width,
        x_row=source.strides[0],
        y_row=y.strides[0],
        block=block,
    )


SPECS = (
    KernelSpec(
        "embedding",
        "triton",
        compiled,
        PORTABLE,
        {**indices("ids"), **device_floats("weight")},
        CUDA,
        launches=plan_embedding,
    ),
)
