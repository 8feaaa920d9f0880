"""kv_write.triton; attention.triton for any rows, triton_decode split over keys, both in extend."""

from __future__ import annotations

from dataclasses import replace

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
from tskernels.ops.attention.configs import Decode, Heads, Rows, decode, rows
from tskernels.schema import DType
from tskernels.signatures import device_floats, indices

MODULE = "tskernels.ops.attention.triton"

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
    """One row of each sequence; a sequence's keys are shared out among blocks."""
    return plan_shares(call, decode(heads_of(call), call.arch))


def plan_shares(call: CallLayout, config: Decode) -> LaunchPlan:
    """As `plan_decode`, by `config`."""
    heads, sequences = heads_of(call), call.input(3).shape[0]
    block_c = next_power_of_two(heads.group)
    block_d = max(_SMALLEST_DOT, next_power_of_two(heads.width))
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "decode",
        (sequences, heads.kv_heads, config.splits),
        (*_operands(builder), scratch(DType.FLOAT32), counters()),
        num_warps=config.num_warps,
        num_stages=config.stages,
        **_shared(call),
        splits=config.splits,
        block_g=max(_SMALLEST_DOT, block_c),
        block_c=block_c,
        block_t=config.block_t,
        block_d=block_d,
        stages=config.stages,
        lines=next_power_of_two(heads.width * heads.dtype.itemsize // 128),
    )
    if config.splits == 1:
        return LaunchPlan((launch,))
    areas = sequences * heads.kv_heads
    return LaunchPlan((launch,), areas * config.splits * block_c * (block_d + 2) * 4, areas * 4)


def plan_rows(call: CallLayout) -> LaunchPlan:
    """Any rows of each sequence, by tiles."""
    return plan_tiles(call, rows(heads_of(call), call.arch))


def plan_extend(call: CallLayout) -> LaunchPlan:
    """Sequences with one row as in a decode step, all others by tiles, which those leave empty."""
    tiles = plan_tiles(call, rows(heads_of(call), call.arch), several=True)
    single = plan_single(call)
    return replace(single, launches=(*single.launches, *tiles.launches))


def plan_single(call: CallLayout) -> LaunchPlan:
    """The rows of sequences with one row, whatever others have."""
    heads = replace(heads_of(call), rows=call.input(3).shape[0])
    return plan_shares(call, decode(heads, call.arch))


def plan_tiles(call: CallLayout, config: Rows, *, several: bool = False) -> LaunchPlan:
    """As `plan_rows`, by `config`; only of sequences with `several` rows, if asked."""
    heads, sequences = heads_of(call), call.input(3).shape[0]
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "rows",
        (-(-heads.rows // config.block_m) + sequences, heads.kv_heads * heads.group),
        _operands(builder),
        num_warps=config.num_warps,
        num_stages=config.stages,
        sequences=sequences,
        **_shared(call),
        block_s=next_power_of_two(sequences),
        block_m=config.block_m,
        block_t=config.block_t,
        block_d=max(_SMALLEST_DOT, next_power_of_two(heads.width)),
        stages=config.stages,
        several=several,
    )
    return LaunchPlan((launch,))


def heads_of(call: CallLayout) -> Heads:
    """The sizes of an attention by its query and cache."""
    query, cache = call.input(0), call.input(1)
    kv_heads = cache.shape[2]
    return Heads(query.shape[0], kv_heads, query.shape[1] // kv_heads, query.shape[2], query.dtype)


def _operands(builder: LaunchBuilder) -> tuple[Parameter, ...]:
    return (*builder.inputs(0, 1, 2, 3, 4, 5), *builder.outputs(0))


def _shared(call: CallLayout) -> dict[str, float | int]:
    heads, query, cache = heads_of(call), call.input(0), call.input(1)
    return {
        "scale": call.number("scale"),
        "window": call.integer("window"),
        "has_sinks": call.inputs[5] is not None,
        "kv_heads": heads.kv_heads,
        "group": heads.group,
        "width": heads.width,
        "page_size": cache.shape[3],
        "max_pages": call.input(2).shape[1],
        **strides(query=query, y=call.outputs[0]),
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
    KernelSpec(
        "attention",
        "triton_extend",
        compiled,
        PERFORMANT,
        _ATTENTION,
        CUDA,
        mode="extend",
        launches=plan_extend,
    ),
)
