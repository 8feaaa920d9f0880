"""Greedy sampling in Triton; no op of a plan, but what follows its logits."""

from __future__ import annotations

from tskernels.launch import (
    CallLayout,
    LaunchBuilder,
    LaunchPlan,
    Operand,
    counters,
    next_power_of_two,
    scratch,
)
from tskernels.schema import DType, TensorType

MODULE = "tskernels.ops.sampling.triton"
_BLOCK = 2048
_MOST_SPLITS = 32


def plan_greedy(logits: Operand, arch: str) -> LaunchPlan:
    """From logits [rows, V], input 0, the lowest column of the largest to output 0, int32 [rows].

    -1 for a row whose largest logit is infinite, or that holds NaN.
    """
    rows, columns = logits.shape
    tokens = Operand(TensorType(DType.INT32, (rows,)), (1,), 256)
    builder = LaunchBuilder(MODULE, CallLayout((logits,), (tokens,), {}, arch))
    block = min(_BLOCK, next_power_of_two(columns))
    splits = min(_MOST_SPLITS, -(-columns // block))
    places = rows * splits * 4
    launch = builder.launch(
        "greedy",
        (rows, splits),
        (
            *builder.inputs(0),
            *builder.outputs(0),
            scratch(DType.FLOAT32),
            scratch(DType.INT32, -(-places // 256) * 256),
            counters(),
        ),
        columns=columns,
        logits_row=logits.strides[0],
        splits=splits,
        block=block,
        block_s=next_power_of_two(splits),
    )
    return LaunchPlan((launch,), -(-places // 256) * 512, rows * 4)
