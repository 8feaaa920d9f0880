"""kv_write.triton; attention.triton for any rows, triton_decode split over keys, both in extend."""

from __future__ import annotations

from dataclasses import replace
from math import e, log2

from tskernels.capabilities import CUDA, HOPPER, strides
from tskernels.kernel import PERFORMANT, PORTABLE, KernelSpec, compiled
from tskernels.launch import (
    ALIGNED,
    DEPENDENT_LAUNCH,
    Address,
    CallLayout,
    CudaFunction,
    Launch,
    LaunchBuilder,
    LaunchPlan,
    Parameter,
    TensorMap,
    counters,
    next_power_of_two,
    scratch,
)
from tskernels.ops.attention.configs import (
    UNIT,
    Decode,
    Heads,
    Rows,
    Shares,
    Units,
    decode,
    rows,
    shares,
    takes_units,
)
from tskernels.schema import DType
from tskernels.signatures import device_floats, indices

MODULE = "tskernels.ops.attention.triton"
BY_UNITS = "ops/attention/hopper/decode.cu"

_LINE = 128
"""Bytes of a line that the copy engine's boxes have."""

_STRIDES = ("query_row", "query_head", "y_row", "y_head")

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
    return plan_shares(call, shares(heads_of(call), call.arch, by_units=by_units(call)))


def by_units(call: CallLayout) -> bool:
    """Whether Hopper's kernel takes the call, and the call is for Hopper.

    The copy engine must be able to read its cache, and a thread two neighbours of its query.
    """
    if call.arch != HOPPER:
        return False
    query, cache, sequences = call.input(0), call.input(1), call.input(3).shape[0]
    fits = takes_units(heads_of(call), cache.shape[3], sequences)
    pairs = query.alignment % 4 == 0 and all(stride % 2 == 0 for stride in query.strides[:2])
    return fits and pairs and cache.alignment % ALIGNED == 0 and cache.contiguous


def plan_shares(call: CallLayout, config: Shares) -> LaunchPlan:
    """As `plan_decode`, by `config`."""
    if isinstance(config, Units):
        return _units(call, config)
    return _splits(call, config)


def _units(call: CallLayout, config: Units) -> LaunchPlan:
    """Hopper's kernel, whose blocks have equal shares of all sequences' keys."""
    heads, sequences, shared = heads_of(call), call.input(3).shape[0], _shared(call)
    page_size = call.input(1).shape[3]
    constants: dict[str, int | float] = {
        "SEQUENCES": sequences,
        "BLOCKS": config.blocks,
        "STAGES": config.stages,
        "KV_HEADS": heads.kv_heads,
        "GROUP": heads.group,
        "WIDTH": heads.width,
        "PAGE": page_size,
        "MAX_PAGES": call.input(2).shape[1],
        **{name.upper(): int(shared[name]) for name in _STRIDES},
        "WINDOW": call.integer("window"),
        "HAS_SINKS": int(call.inputs[5] is not None),
        "SCALE": call.number("scale") * log2(e),
        "EARLY": int(call.arch in DEPENDENT_LAUNCH),
        **({"HALF": 1} if heads.dtype is DType.FLOAT16 else {}),
    }
    function = CudaFunction(
        BY_UNITS, "decode", tuple(constants.items()), 5, config.shared_bytes(heads)
    )
    builder = LaunchBuilder(MODULE, call)
    parameters = (
        *builder.inputs(0, 2, 3, 4, 5),
        *builder.outputs(0),
        scratch(DType.FLOAT32),
        counters(),
    )
    line = _LINE // heads.dtype.itemsize
    lines = min(page_size, UNIT) * heads.width // line
    maps = (TensorMap(Address("input", 1), (lines, line), line),)
    addresses = tuple(p.address for p in parameters)
    left = config.blocks * 2 * heads.group * (heads.width + 2) * 4
    return LaunchPlan(
        (Launch(function, (config.blocks, 1, 1), addresses, maps),),
        left,
        sequences * heads.kv_heads * 4,
    )


def _splits(call: CallLayout, config: Decode) -> LaunchPlan:
    """Triton's kernel, which shares out each sequence's keys among as many blocks."""
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
