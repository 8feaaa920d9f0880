"""linear and linear_silu_mul in Triton: a streaming kernel for few rows, a tiled one for any."""

from __future__ import annotations

from tskernels.capabilities import CUDA
from tskernels.kernel import PERFORMANT, PORTABLE, KernelQuery, KernelSpec, Trait, compiled
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
from tskernels.ops.linear.configs import FewRows, Lines, OneRow, Plain, few_rows, many_rows
from tskernels.ops.linear.product import LINE, MOST_LINES, MOST_ROWS, Product, block_of
from tskernels.ops.linear.rings import ROW_BLOCK, Ring
from tskernels.schema import DType
from tskernels.signatures import device_floats

MODULE = "tskernels.ops.linear.triton"
STRAIGHT = "tskernels.ops.linear.triton_lines"
RING = "ops/linear/hopper/ring.cu"
MOST_FUSED = 256
"""Rows beyond which cuBLAS and an activation of its own beat the tiled kernel on an H200."""


def plan_linear(call: CallLayout) -> LaunchPlan:
    """X [T, K] times the transposed weight [N, K], plus the bias [N] if there is one."""
    return _many(call, gated=False)


def plan_linear_silu_mul(call: CallLayout) -> LaunchPlan:
    """Gate and up by packed weight [2F, K], then silu(gate) * up, [T, F]."""
    return _many(call, gated=True)


def plan_few_rows(call: CallLayout) -> LaunchPlan:
    """As `plan_linear`, for at most `MOST_ROWS` rows."""
    return _few(call, gated=False)


def plan_few_rows_gated(call: CallLayout) -> LaunchPlan:
    """As `plan_linear_silu_mul`, for at most `MOST_ROWS` rows."""
    return _few(call, gated=True)


def plain_product(call: CallLayout, *, gated: bool) -> Product:
    """The call's sizes."""
    x, y = call.input(0), call.outputs[0]
    return Product(x.shape[0], y.shape[1], x.shape[1], x.dtype, gated)


def _parameters(builder: LaunchBuilder) -> tuple[Parameter, ...]:
    return (*builder.inputs(0, 1, 2), *builder.outputs(0))


def _many(call: CallLayout, *, gated: bool) -> LaunchPlan:
    builder, product = LaunchBuilder(MODULE, call), plain_product(call, gated=gated)
    config = many_rows(product)
    down = -(-product.rows // config.block_m)
    across = -(-product.columns // config.block_n)
    launch = builder.launch(
        "tiles",
        (down * across,),
        _parameters(builder),
        num_warps=config.num_warps,
        num_stages=config.stages,
        rows=product.rows,
        columns=product.columns,
        depth=product.depth,
        x_row=call.input(0).strides[0],
        w_row=call.input(1).strides[0],
        y_row=call.outputs[0].strides[0],
        gated=gated,
        has_bias=call.inputs[2] is not None,
        block_m=config.block_m,
        block_n=config.block_n,
        block_k=config.block_k,
        group=config.group,
    )
    return LaunchPlan((launch,))


def _few(call: CallLayout, *, gated: bool) -> LaunchPlan:
    product = plain_product(call, gated=gated)
    return plan_product(call, product, few_rows(product, call.arch, aligned=aligned(call)))


def aligned(call: CallLayout) -> bool:
    """Whether all rows of x, the weight and y begin at multiples of 16 bytes."""
    operands = (call.input(0), call.input(1), call.outputs[0])
    return all(
        o.alignment % ALIGNED == 0 and o.strides[0] * o.dtype.itemsize % ALIGNED == 0
        for o in operands
    )


def plan_product(call: CallLayout, product: Product, config: Plain) -> LaunchPlan:
    """The launches of a product of at most `MOST_ROWS` rows by `config`."""
    match config:
        case OneRow():
            return _one(call, product, config)
        case FewRows():
            return _streamed(call, product, config)
        case Lines():
            return _lines(call, product, config)
        case Ring():
            return _ring(call, product, config)


def _one(call: CallLayout, product: Product, config: OneRow) -> LaunchPlan:
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "one_row",
        (-(-product.columns // config.block_n),),
        _parameters(builder),
        num_warps=config.num_warps,
        columns=product.columns,
        depth=product.depth,
        w_row=call.input(1).strides[0],
        gated=product.gated,
        has_bias=call.inputs[2] is not None,
        block_n=config.block_n,
        block_k=config.block_k,
        ahead=min(config.ahead, -(-product.depth // config.block_k)),
    )
    return LaunchPlan((launch,))


def _lines(call: CallLayout, product: Product, config: Lines) -> LaunchPlan:
    """The kernel whose weights go straight to registers."""
    builder = LaunchBuilder(STRAIGHT, call)
    launch = builder.launch(
        "lines",
        (product.columns // config.columns,),
        _parameters(builder),
        num_warps=config.num_warps,
        rows=product.rows,
        columns=product.columns,
        depth=product.depth,
        x_row=call.input(0).strides[0],
        w_row=call.input(1).strides[0],
        y_row=call.outputs[0].strides[0],
        gated=product.gated,
        has_bias=call.inputs[2] is not None,
        warps=config.num_warps,
        block_n=config.block_n,
        block_m=MOST_LINES,
        tiles=config.tiles,
        ahead=config.ahead,
    )
    return LaunchPlan((launch,))


def _ring(call: CallLayout, product: Product, config: Ring) -> LaunchPlan:
    """Hopper's kernel, whose weights come through a ring in shared memory."""
    block_m = block_of(product.rows)
    constants = {
        "ROWS": product.rows,
        "COLUMNS": product.columns,
        "DEPTH": product.depth,
        "Y_ROW": call.outputs[0].strides[0],
        "GATED": int(product.gated),
        "HAS_BIAS": int(call.inputs[2] is not None),
        "BLOCK_M": block_m,
        "ROW_BLOCKS": config.row_blocks,
        "STAGES": config.stages,
        "SPLITS": config.splits,
        "TILES": config.tiles,
        "EARLY": int(call.arch in DEPENDENT_LAUNCH),
        **({"HALF": 1} if product.dtype is DType.FLOAT16 else {}),
    }
    function = CudaFunction(
        RING, "ring", tuple(constants.items()), config.num_warps, config.shared_bytes(block_m)
    )
    step = LINE // product.dtype.itemsize
    copied = ROW_BLOCK // 2 if product.gated else ROW_BLOCK
    maps = (
        TensorMap(Address("input", 0), (block_m, step)),
        TensorMap(Address("input", 1), (copied, step)),
    )
    addresses = tuple(p.address for p in _parameters(LaunchBuilder(MODULE, call))[2:])
    return LaunchPlan((Launch(function, (config.blocks(product), 1, 1), addresses, maps),))


def _streamed(call: CallLayout, product: Product, config: FewRows) -> LaunchPlan:
    """The streaming kernel; its tiles' sums meet in the scratch area."""
    builder = LaunchBuilder(MODULE, call)
    across = -(-product.columns // config.block_n)
    block_m = block_of(product.rows)
    launch = builder.launch(
        "few_rows",
        (across, config.splits),
        (*_parameters(builder), scratch(DType.FLOAT32), counters()),
        num_warps=config.num_warps,
        num_stages=config.stages,
        rows=product.rows,
        columns=product.columns,
        depth=product.depth,
        x_row=call.input(0).strides[0],
        w_row=call.input(1).strides[0],
        y_row=call.outputs[0].strides[0],
        gated=product.gated,
        has_bias=call.inputs[2] is not None,
        splits=config.splits,
        block_n=config.block_n,
        block_m=block_m,
        block_k=config.block_k,
        stages=config.stages,
        lines=next_power_of_two(config.stages * config.block_k * product.dtype.itemsize // 128),
    )
    if config.splits == 1:
        return LaunchPlan((launch,))
    sums = config.splits * (2 if product.gated else 1) * config.block_n * block_m
    return LaunchPlan((launch,), across * sums * 4, across * 4)


def _rows_fit(query: KernelQuery) -> bool:
    shape = query.shapes[0]
    return shape is not None and shape[0] <= MOST_ROWS


def _fused_wins(query: KernelQuery) -> bool:
    shape = query.shapes[0]
    return shape is not None and shape[0] <= MOST_FUSED


FEW_ROWS = Trait(f"takes at most {MOST_ROWS} rows", _rows_fit)
FEWER_ROWS = Trait(f"loses to its parts beyond {MOST_FUSED} rows", _fused_wins)
_FLOATS = device_floats("x", "weight", "bias")

SPECS = (
    KernelSpec("linear", "triton", compiled, PORTABLE, _FLOATS, CUDA, launches=plan_linear),
    KernelSpec(
        "linear",
        "triton_rows",
        compiled,
        PERFORMANT,
        _FLOATS,
        CUDA,
        traits=(FEW_ROWS,),
        launches=plan_few_rows,
    ),
    KernelSpec(
        "linear_silu_mul",
        "triton",
        compiled,
        PORTABLE,
        _FLOATS,
        CUDA,
        traits=(FEWER_ROWS,),
        launches=plan_linear_silu_mul,
    ),
    KernelSpec(
        "linear_silu_mul",
        "triton_rows",
        compiled,
        PERFORMANT,
        _FLOATS,
        CUDA,
        traits=(FEW_ROWS,),
        launches=plan_few_rows_gated,
    ),
)
