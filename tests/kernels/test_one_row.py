"""Products of one row: block sizes that were measured, and how far their tiles may run ahead."""

from __future__ import annotations

import re

import pytest

from tskernels.launch import CallLayout, LaunchPlan, Operand
from tskernels.ops.linear.configs import OneRow, candidates, few_rows
from tskernels.ops.linear.cuda import plan_product
from tskernels.ops.linear.product import Product
from tskernels.ops.linear.scaled_configs import scaled_candidates, scaled_few_rows
from tskernels.ops.linear.scaled_cuda import plan_scaled_product
from tskernels.schema import DType, TensorType
from tskernels.tuning.table import table

KEY = re.compile(r"(scaled_)?linear(_silu_mul)? (\w+) 1x(\d+)x(\d+)")
BLOCK = (128, 128)
DEPTH = 1536


def measured() -> list[Product]:
    """The products of one row in sm_90's table."""
    found: list[Product] = []
    for key in table("sm_90"):
        if match := KEY.fullmatch(key):
            scaled, gated, dtype, columns, depth = match.groups()
            block = BLOCK if scaled else None
            sizes = (1, int(columns), int(depth))
            found.append(Product(*sizes, DType(dtype), gated is not None, block))
    return found


@pytest.mark.parametrize("product", measured(), ids=lambda p: p.key)
def test_what_was_measured_is_what_tune_would_measure_again(product: Product) -> None:
    config = (scaled_few_rows if product.block else few_rows)(product, "sm_90")
    assert isinstance(config, OneRow)
    assert config in (scaled_candidates if product.block else candidates)(product)


@pytest.mark.parametrize("depth", [4096, 12288, 500])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("block", [None, BLOCK])
def test_candidates_differ_and_leave_a_tile_to_ask_for(
    depth: int, gated: bool, block: tuple[int, int] | None
) -> None:
    product = Product(1, 4096, depth, DType.BFLOAT16, gated, block)
    every = (scaled_candidates if block else candidates)(product)
    found = [config for config in every if isinstance(config, OneRow)]
    assert len(set(found)) == len(found)
    assert all(config.ahead * config.block_k < depth for config in found)
    assert any(config.ahead for config in found) == (depth > 500)


@pytest.mark.parametrize(("ahead", "wanted"), [(0, 0), (2, 2), (6, 6), (9, 6)])
@pytest.mark.parametrize("block", [None, BLOCK])
def test_no_more_tiles_run_ahead_than_there_are(
    ahead: int, wanted: int, block: tuple[int, int] | None
) -> None:
    (launch,) = plan(OneRow(2, DEPTH // 6, 2, ahead), block).launches
    assert dict(launch.function.constants)["ahead"] == wanted


def plan(config: OneRow, block: tuple[int, int] | None) -> LaunchPlan:
    product = Product(1, 256, DEPTH, DType.BFLOAT16, False, block)
    x, y = operand(DType.BFLOAT16, 1, DEPTH), operand(DType.BFLOAT16, 1, 256)
    if block is None:
        weight = operand(DType.BFLOAT16, 256, DEPTH)
        return plan_product(CallLayout((x, weight, None), (y,), {}, "sm_90"), product, config)
    weight = operand(DType.FLOAT8_E4M3, 256, DEPTH)
    scale = operand(DType.FLOAT32, 256 // block[0], DEPTH // block[1])
    call = CallLayout((x, weight, scale, None), (y,), {"block": block}, "sm_90")
    return plan_scaled_product(call, product, config)


def operand(dtype: DType, rows: int, columns: int) -> Operand:
    return Operand(TensorType(dtype, (rows, columns)), (columns, 1), 256)
