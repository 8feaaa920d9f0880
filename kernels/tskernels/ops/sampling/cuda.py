"""Greedy sampling in Triton, and the step after's input: no ops of a plan, but around its own."""

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


def plan_feed(rows: int, arch: str) -> LaunchPlan:
    """Of ids [rows], output 0, those below 0 become sampled[slots[row]], inputs 1 and 0."""
    call = CallLayout((_integers(rows), _integers(rows)), (_integers(rows),), {}, arch)
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "feed",
        (1,),
        (*builder.inputs(0, 1), *builder.outputs(0)),
        rows=rows,
        block=next_power_of_two(rows),
    )
    return LaunchPlan((launch,))


def plan_greedy(logits: Operand, arch: str, *, kept: bool) -> LaunchPlan:
    """From logits [rows, V], input 0, the lowest column of the largest to output 0, int32 [rows].

    -1 for a row whose largest logit is infinite, or that holds NaN. Where `kept`, the token of row
    i goes to entry slots[i] of output 1 too; slots [rows] are input 1, below 0 for padding.
    """
    rows, columns = logits.shape
    tokens = _integers(rows)
    call = CallLayout((logits, tokens), (tokens, tokens), {}, arch)
    builder = LaunchBuilder(MODULE, call)
    block = min(_BLOCK, next_power_of_two(columns))
    splits = min(_MOST_SPLITS, -(-columns // block))
    places = rows * splits * 4
    launch = builder.launch(
        "greedy",
        (rows, splits),
        (
            *builder.inputs(0, 1),
            *builder.outputs(0, 1),
            scratch(DType.FLOAT32),
            scratch(DType.INT32, -(-places // 256) * 256),
            counters(),
        ),
        columns=columns,
        logits_row=logits.strides[0],
        splits=splits,
        block=block,
        block_s=next_power_of_two(splits),
        kept=kept,
    )
    return LaunchPlan((launch,), -(-places // 256) * 512, rows * 4)


def _integers(count: int) -> Operand:
    return Operand(TensorType(DType.INT32, (count,)), (1,), 256)
