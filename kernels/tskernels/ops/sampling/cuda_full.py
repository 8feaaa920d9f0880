"""Launches that draw a token of each row, each request by its own rules: no op of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

from tskernels.launch import (
    CallLayout,
    Launch,
    LaunchBuilder,
    LaunchPlan,
    Operand,
    Parameter,
    counters,
    next_power_of_two,
    scratch,
)
from tskernels.ops.sampling.cuda import plan_greedy
from tskernels.ops.sampling.words import ROW_WORDS, TOP_LOGPROBS, DrawKind, mask_words
from tskernels.schema import DType, TensorType

_FULL = "tskernels.ops.sampling.triton_full"
_LOGPROBS = "tskernels.ops.sampling.triton_logprobs"
_PAST = "tskernels.ops.sampling.triton_past"
_BLOCK = 1024
_SELECT_BLOCK = 512
_FEW_ROWS = 8
_SPLITS_OF_FEW = 64
_SPLITS = 16
_LOGPROB_SPLITS = 32
_DIGITS = 8
_PASSES = 11
_STATE_WORDS = 16
_REFILL_BLOCKS = 16
_AREA = 256


@dataclass(frozen=True, slots=True)
class _Cut:
    """How blocks share the columns of a row: `splits` have `share` each, by tiles of `block`."""

    splits: int
    share: int
    block: int


def plan_draw(logits: Operand, slots: int, arch: str, kind: DrawKind) -> LaunchPlan:
    """A token of each row of logits [R, V] (input 0), where every logit row is a sequence's last.

    Inputs 1 to 5: int32 slots [R], below 0 for padding; int32 row words [R, ROW_WORDS] and masks
    [R, mask_words(V)] (see `words`); int32 counts and float32 biases [`slots`, V]. Outputs 0 and 1
    are as `plan_greedy`'s, 2 is the counts; 3 to 5 the log-probabilities: float32 of the drawn
    tokens [R], int32 ids and float32 values of the likeliest [R, TOP_LOGPROBS].
    """
    rows, columns = logits.shape
    call = CallLayout(
        (
            logits,
            _operand(DType.INT32, rows),
            _operand(DType.INT32, rows, ROW_WORDS),
            _operand(DType.INT32, rows, mask_words(columns)),
            _operand(DType.INT32, slots, columns),
            _operand(DType.FLOAT32, slots, columns),
        ),
        (
            _operand(DType.INT32, rows),
            _operand(DType.INT32, slots),
            _operand(DType.INT32, slots, columns),
            _operand(DType.FLOAT32, rows),
            _operand(DType.INT32, rows, TOP_LOGPROBS),
            _operand(DType.FLOAT32, rows, TOP_LOGPROBS),
        ),
        {},
        arch,
    )
    drawn = _full(call) if kind.full else plan_greedy(logits, arch, kept=True)
    return _then(drawn, _logprobs(call, drawn.scratch_bytes)) if kind.logprobs else drawn


def plan_past(columns: int, slots: int, arch: str) -> LaunchPlan:
    """Of a slot's past in words (input 0): counts and biases [slots, columns], outputs 0 and 1."""
    call = CallLayout(
        (_operand(DType.INT32, 1),),
        (_operand(DType.INT32, slots, columns), _operand(DType.FLOAT32, slots, columns)),
        {},
        arch,
    )
    builder = LaunchBuilder(_PAST, call)
    pointers = (*builder.inputs(0), *builder.outputs(0, 1))
    block = min(_BLOCK, next_power_of_two(columns))
    cleared = -(-columns // block)
    return LaunchPlan(
        (
            builder.launch("clear", (cleared,), pointers, columns=columns, block=block),
            builder.launch("refill", (_REFILL_BLOCKS,), pointers, columns=columns, block=256),
        )
    )


def _full(call: CallLayout) -> LaunchPlan:
    rows, columns = call.input(0).shape
    builder, cut = LaunchBuilder(_FULL, call), _cut(rows, columns)
    parts = rows * cut.splits
    (adjusted, tops, states, sums, tied, values, places), size = _areas(
        (DType.FLOAT32, rows * columns),
        (DType.FLOAT32, parts * 2),
        (DType.INT64, rows * _STATE_WORDS),
        (DType.INT64, parts * _DIGITS),
        (DType.INT32, parts),
        (DType.FLOAT64, parts),
        (DType.INT32, parts),
    )
    count = counters()
    (words,) = builder.inputs(2)
    grid = (rows, cut.splits)
    shared: dict[str, Any] = {
        "columns": columns,
        "splits": cut.splits,
        "share": cut.share,
        "block_s": next_power_of_two(cut.splits),
    }
    adjust = LaunchBuilder(_FULL, call, rounds_products=True).launch(
        "adjust",
        grid,
        (*builder.inputs(0, 1, 2, 3, 4, 5), adjusted, tops, states, count),
        logits_row=call.input(0).strides[0],
        mask_words=mask_words(columns),
        block=cut.block,
        **shared,
    )

    def select(*, nucleus: bool) -> Launch:
        return builder.launch(
            "select",
            grid,
            (words, adjusted, tops, sums, states, count),
            num_warps=8,
            nucleus=nucleus,
            block=min(_SELECT_BLOCK, cut.block),
            **shared,
        )

    ties = builder.launch(
        "ties",
        grid,
        (adjusted, tied, states),
        columns=columns,
        splits=cut.splits,
        share=cut.share,
        block=cut.block,
    )
    draw = builder.launch(
        "draw",
        grid,
        (
            *builder.inputs(1, 2),
            *builder.outputs(0, 1, 2),
            *(adjusted, tied, states, values, places, count),
        ),
        block=cut.block,
        **shared,
    )
    edges = (select(nucleus=False),) * _PASSES + (select(nucleus=True),) * _PASSES
    return LaunchPlan((adjust, *edges, ties, draw), size, rows * 4)


def _logprobs(call: CallLayout, first: int) -> LaunchPlan:
    """Log-probabilities of the tokens in output 0; its scratch begins at byte `first`."""
    rows, columns = call.input(0).shape
    builder = LaunchBuilder(_LOGPROBS, call)
    share = max(-(-columns // _LOGPROB_SPLITS), min(columns, _BLOCK))
    splits, block_m = -(-columns // share), next_power_of_two(TOP_LOGPROBS)
    (keys, maxima, exponentials), size = _areas(
        (DType.INT64, rows * splits * block_m),
        (DType.FLOAT32, rows * splits),
        (DType.FLOAT32, rows * splits),
        first=first,
    )
    launch = builder.launch(
        "logprobs",
        (rows, splits),
        (
            *builder.inputs(0),
            *builder.outputs(0, 3, 4, 5),
            *(keys, maxima, exponentials, counters()),
        ),
        num_warps=8,
        columns=columns,
        logits_row=call.input(0).strides[0],
        splits=splits,
        share=share,
        block=next_power_of_two(share),
        block_s=next_power_of_two(splits),
        most=TOP_LOGPROBS,
        block_m=block_m,
    )
    return LaunchPlan((launch,), size, rows * 4)


def _then(one: LaunchPlan, other: LaunchPlan) -> LaunchPlan:
    return LaunchPlan(
        (*one.launches, *other.launches),
        max(one.scratch_bytes, other.scratch_bytes),
        max(one.counter_bytes, other.counter_bytes),
    )


def _cut(rows: int, columns: int) -> _Cut:
    block = min(_BLOCK if rows > _FEW_ROWS else _SELECT_BLOCK, next_power_of_two(columns))
    most = _SPLITS_OF_FEW if rows <= _FEW_ROWS else _SPLITS
    share = -(-columns // (block * most)) * block
    return _Cut(-(-columns // share), share, block)


def _areas(*sizes: tuple[DType, int], first: int = 0) -> tuple[tuple[Parameter, ...], int]:
    """A scratch area for each (dtype, count), from byte `first` on, and where the last one ends."""
    bytes_ = [-(-dtype.itemsize * count // _AREA) * _AREA for dtype, count in sizes]
    starts = list(accumulate(bytes_, initial=-(-first // _AREA) * _AREA))
    areas = tuple(scratch(dtype, at) for (dtype, _), at in zip(sizes, starts, strict=False))
    return areas, starts[-1]


def _operand(dtype: DType, *shape: int) -> Operand:
    strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    return Operand(TensorType(dtype, shape), strides, _AREA)
