"""scaled_linear and its gated form in Triton: a streaming kernel for one row, tiles for any."""

from __future__ import annotations

from typing import Any, cast

from tskernels.capabilities import CUDA
from tskernels.kernel import (
    PERFORMANT,
    PORTABLE,
    KernelQuery,
    KernelSpec,
    Signature,
    Trait,
    compiled,
)
from tskernels.launch import (
    CallLayout,
    LaunchBuilder,
    LaunchPlan,
    Parameter,
    counters,
    next_power_of_two,
    scratch,
)
from tskernels.ops.linear.configs import Few, FewRows, Lines, ManyRows, OneRow
from tskernels.ops.linear.cuda import FEW_ROWS, FEWER_ROWS
from tskernels.ops.linear.product import MOST_LINES, Product
from tskernels.ops.linear.scaled_configs import (
    GROUP,
    scaled_few_rows,
    scaled_many_rows,
)
from tskernels.schema import DType
from tskernels.signatures import DEVICE_FLOATS

MODULE = "tskernels.ops.linear.triton_scaled"
STRAIGHT = "tskernels.ops.linear.triton_scaled_rows"
_SMALLEST_DOT = 16
_LINE = 128


def plan_scaled_linear(call: CallLayout) -> LaunchPlan:
    """X [T, K] times the transposed weight [N, K] * scale, plus the bias [N] if there is one."""
    product = scaled_product(call, gated=False)
    return _tiled(call, product, scaled_many_rows(product))


def plan_scaled_linear_silu_mul(call: CallLayout) -> LaunchPlan:
    """Gate and up by packed weight [2F, K], then silu(gate) * up, [T, F]."""
    product = scaled_product(call, gated=True)
    return _tiled(call, product, scaled_many_rows(product))


def plan_scaled_few_rows(call: CallLayout) -> LaunchPlan:
    """As `plan_scaled_linear`, for at most `MOST_ROWS` rows."""
    product = scaled_product(call, gated=False)
    return plan_scaled_product(call, product, scaled_few_rows(product, call.arch))


def plan_scaled_few_rows_gated(call: CallLayout) -> LaunchPlan:
    """As `plan_scaled_linear_silu_mul`, for at most `MOST_ROWS` rows."""
    product = scaled_product(call, gated=True)
    return plan_scaled_product(call, product, scaled_few_rows(product, call.arch))


def scaled_product(call: CallLayout, *, gated: bool) -> Product:
    """The call's sizes."""
    x, y = call.input(0), call.outputs[0]
    block = cast("tuple[int, int]", call.attributes["block"])
    return Product(x.shape[0], y.shape[1], x.shape[1], x.dtype, gated, block)


def plan_scaled_product(call: CallLayout, product: Product, config: Few) -> LaunchPlan:
    """The launches of a product of at most `MOST_ROWS` rows by `config`."""
    match config:
        case OneRow():
            return _one(call, product, config)
        case FewRows():
            return _tiled(call, product, config)
        case Lines():
            return _lines(call, product, config)


def _parameters(builder: LaunchBuilder) -> tuple[Parameter, ...]:
    return (*builder.inputs(0, 1, 2, 3), *builder.outputs(0))


def _constants(call: CallLayout, product: Product) -> dict[str, Any]:
    assert product.block is not None
    return {
        "columns": product.columns,
        "depth": product.depth,
        "w_row": call.input(1).strides[0],
        "s_row": call.input(2).strides[0],
        "rows_a_block": product.block[0],
        "columns_a_block": product.block[1],
        "gated": product.gated,
        "has_bias": call.inputs[3] is not None,
        "native": call.arch != "sm_80",  # older GPUs have no instruction that decodes
    }


def _one(call: CallLayout, product: Product, config: OneRow) -> LaunchPlan:
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "scaled_one_row",
        (-(-product.columns // config.block_n),),
        _parameters(builder),
        num_warps=config.num_warps,
        **_constants(call, product),
        block_n=config.block_n,
        block_k=config.block_k,
        ahead=min(config.ahead, -(-product.depth // config.block_k)),
    )
    return LaunchPlan((launch,))


def _lines(call: CallLayout, product: Product, config: Lines) -> LaunchPlan:
    """The kernel whose weights go straight to registers."""
    builder = LaunchBuilder(STRAIGHT, call)
    constants = _constants(call, product)
    del constants["columns_a_block"]  # a line's, always
    launch = builder.launch(
        "scaled_rows",
        (product.columns // config.columns,),
        _parameters(builder),
        num_warps=config.num_warps,
        rows=product.rows,
        x_row=call.input(0).strides[0],
        y_row=call.outputs[0].strides[0],
        **constants,
        warps=config.num_warps,
        block_n=config.block_n,
        block_m=MOST_LINES,
        ahead=config.ahead,
    )
    return LaunchPlan((launch,))


def _tiled(call: CallLayout, product: Product, config: FewRows | ManyRows) -> LaunchPlan:
    """The tiled kernel; where the depth is split, the sums meet in the scratch area."""
    builder = LaunchBuilder(MODULE, call)
    if isinstance(config, FewRows):
        block_m, splits = max(_SMALLEST_DOT, next_power_of_two(product.rows)), config.splits
        group = 1
    else:
        block_m, splits, group = config.block_m, 1, config.group
    tiles = -(-product.columns // config.block_n) * -(-product.rows // block_m)
    launch = builder.launch(
        "scaled_tiles",
        (tiles, splits),
        (*_parameters(builder), scratch(DType.FLOAT32), counters()),
        num_warps=config.num_warps,
        num_stages=config.stages,
        rows=product.rows,
        x_row=call.input(0).strides[0],
        y_row=call.outputs[0].strides[0],
        **_constants(call, product),
        splits=splits,
        block_n=config.block_n,
        block_m=block_m,
        block_k=config.block_k,
        group=group,
        stages=config.stages,
        lines=next_power_of_two(config.stages * config.block_k // _LINE),
    )
    if splits == 1:
        return LaunchPlan((launch,))
    sums = splits * (2 if product.gated else 1) * config.block_n * block_m
    return LaunchPlan((launch,), tiles * sums * 4, tiles * 4)


def _block_fits(query: KernelQuery) -> bool:
    match query.attributes.get("block"):
        case (_, int(columns)):
            return columns % GROUP == 0
        case _:
            return False


_BLOCKS = Trait(f"takes blocks of a multiple of {GROUP} columns", _block_fits)
_SIGNATURE: Signature = {
    "x": DEVICE_FLOATS,
    "weight": (DType.FLOAT8_E4M3,),
    "scale": (DType.FLOAT32,),
    "bias": DEVICE_FLOATS,
}

SPECS = (
    KernelSpec(
        "scaled_linear",
        "triton",
        compiled,
        PORTABLE,
        _SIGNATURE,
        CUDA,
        traits=(_BLOCKS,),
        launches=plan_scaled_linear,
    ),
    KernelSpec(
        "scaled_linear",
        "triton_rows",
        compiled,
        PERFORMANT,
        _SIGNATURE,
        CUDA,
        traits=(FEW_ROWS, _BLOCKS),
        launches=plan_scaled_few_rows,
    ),
    KernelSpec(
        "scaled_linear_silu_mul",
        "triton",
        compiled,
        PORTABLE,
        _SIGNATURE,
        CUDA,
        traits=(FEWER_ROWS, _BLOCKS),
        launches=plan_scaled_linear_silu_mul,
    ),
    KernelSpec(
        "scaled_linear_silu_mul",
        "triton_rows",
        compiled,
        PERFORMANT,
        _SIGNATURE,
        CUDA,
        traits=(FEW_ROWS, _BLOCKS),
        launches=plan_scaled_few_rows_gated,
    ),
)
