"""kv_write.triton, attention.triton for any rows, attention.triton_decode split over the keys."""

from __future__ import annotations

from tskernels.capabilities import CUDA, strides
from tskernels.kernel import PERFORMANT, PORTABLE, KernelSpec, compiled
from tskernels.launch import (
    CallLayout,
    LaunchBuilder,
    LaunchPlan,
    Parameter,
    counters,
    next_power_of_two,
    scratch,
)
from tskernels.schema import DType
from tskernels.signatures import device_floats, indices

MODULE = "tskernels.ops.attention.triton"

_BLOCKS_WANTED = 512
"""Blocks of a decode launch: some for each multiprocessor, so that they share out evenly."""
_MOST_SPLITS = 16
_MOST_JOINED = 16_384
_SMALLEST_DOT = 16
"""Rows and columns of the smallest product that the matrix units take."""


def plan_kv_write(call: CallLayout) -> LaunchPlan:
    """Copy key and value [T, h, D] into the cache's slots."""
    builder, key, value, cache = (LaunchBuilder(MODULE, call), *(call.input(i) for i in range(3)))
    rows, heads, width = key.shape
    launch = builder.launch(
        "kv_write",
        (rows, heads),
        builder.inputs(0, 1, 2, 3),
        num_warps=1,
        heads=heads,
        width=width,
        page_size=cache.shape[3],
        **strides(key=key, value=value),
        block=next_power_of_two(width),
    )
    return LaunchPlan((launch,))


def plan_decode(call: CallLayout) -> LaunchPlan:
    """One row of each sequence; a sequence's keys are shared out among `splits` blocks."""
    query, cache, table = (call.input(i) for i in range(3))
    kv_heads, width = cache.shape[2], cache.shape[4]
    group = query.shape[1] // kv_heads
    sequences = call.input(3).shape[0]
    block_c = next_power_of_two(group)
    block_d = max(_SMALLEST_DOT, next_power_of_two(width))
    splits = splits_of(sequences * kv_heads, block_c * block_d)
    wide = query.dtype is DType.FLOAT32
    stages = 2 if wide else 3
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "decode",
        (sequences, kv_heads, splits),
        (*_operands(builder), scratch(DType.FLOAT32), counters()),
        num_warps=4,
        num_stages=stages,
        **_shared(call),
        kv_heads=kv_heads,
        group=group,
        width=width,
        page_size=cache.shape[3],
        max_pages=table.shape[1],
        **strides(query=query, y=call.outputs[0]),
        splits=splits,
        block_g=max(_SMALLEST_DOT, block_c),
        block_c=block_c,
        block_t=32 if wide else 64,
        block_d=block_d,
        stages=stages,
        lines=next_power_of_two(width * query.dtype.itemsize // 128),
    )
    if splits == 1:
        return LaunchPlan((launch,))
    areas = sequences * kv_heads
    return LaunchPlan((launch,), areas * splits * block_c * (block_d + 2) * 4, areas * 4)


def splits_of(blocks: int, size: int) -> int:
    """Blocks among which each sequence and key head shares its keys, a power of two.

    One block joins what they leave, `size` numbers each, in registers.
    """
    wanted = next_power_of_two(_BLOCKS_WANTED // blocks)
    return max(1, min(wanted, _MOST_SPLITS, _MOST_JOINED // size))


def plan_rows(call: CallLayout) -> LaunchPlan:
    """Any rows of each sequence, by tiles."""
    query, cache, table = (call.input(i) for i in range(3))
    rows, heads, width = query.shape
    sequences, kv_heads = call.input(3).shape[0], cache.shape[2]
    wide = query.dtype is DType.FLOAT32
    block_m = 32 if wide else 128
    block_m = max(_SMALLEST_DOT, min(block_m, next_power_of_two(rows)))
    stages = 2 if wide else 3
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "rows",
        (-(-rows // block_m) + sequences, heads),
        _operands(builder),
        num_warps=8 if block_m == 128 else 4,
        num_stages=stages,
        **_shared(call),
        sequences=sequences,
        kv_heads=kv_heads,
        group=heads // kv_heads,
        width=width,
        page_size=cache.shape[3],
        max_pages=table.shape[1],
        **strides(query=query, y=call.outputs[0]),
        block_s=next_power_of_two(sequences),
        block_m=block_m,
        block_t=32 if wide else 64,
        block_d=max(_SMALLEST_DOT, next_power_of_two(width)),
        stages=stages,
    )
    return LaunchPlan((launch,))


def _operands(builder: LaunchBuilder) -> tuple[Parameter, ...]:
    return (*builder.inputs(0, 1, 2, 3, 4, 5), *builder.outputs(0))


def _shared(call: CallLayout) -> dict[str, float | int]:
    return {
        "scale": call.number("scale"),
        "window": call.integer("window"),
        "has_sinks": call.inputs[5] is not None,
    }


_ATTENTION = {
    **device_floats("query", "cache", "sinks"),
    **indices("block_table", "seq_lens", "query_starts"),
}

SPECS = (
    KernelSpec(
        "kv_write",
        "triton",
        compiled,
        PORTABLE,
        {**device_floats("key", "value", "cache"), **indices("slot_mapping")},
        CUDA,
        launches=plan_kv_write,
    ),
    KernelSpec("attention", "triton", compiled, PORTABLE, _ATTENTION, CUDA, launches=plan_rows),
    KernelSpec(
        "attention",
        "triton_decode",
        compiled,
        PERFORMANT,
        _ATTENTION,
        CUDA,
        mode="decode",
        launches=plan_decode,
    ),
)
