"""Products whose weights go straight to registers: which sizes they take, and that they compile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured_products import measured

from tskernels.compilers import compile_function
from tskernels.launch import CallLayout, LaunchPlan, Operand
from tskernels.ops.linear.configs import Lines, few_rows, takes
from tskernels.ops.linear.cuda import plan_product
from tskernels.ops.linear.product import Product
from tskernels.ops.linear.scaled_configs import scaled_few_rows, scaled_takes
from tskernels.schema import DType, TensorType

PRODUCT = Product(8, 6144, 4096, DType.BFLOAT16, False)
CONFIG = Lines(8, 1, 2, 6)
BLOCK = (128, 128)


LINES = measured(lambda entry: "tiles" in entry and "row_blocks" not in entry)


@pytest.mark.parametrize("product", LINES, ids=lambda p: p.key)
def test_every_measured_product_comes_out_even(product: Product) -> None:
    config = (scaled_few_rows if product.block else few_rows)(product, "sm_90")
    assert isinstance(config, Lines)
    assert (scaled_takes if product.block else takes)(product, config)


def test_a_table_speaks_of_eight_rows_and_not_of_more() -> None:
    assert isinstance(few_rows(replace(PRODUCT, rows=5), "sm_90"), Lines)
    assert not isinstance(few_rows(replace(PRODUCT, rows=9), "sm_90"), Lines)


@pytest.mark.parametrize(
    "other",
    [{"rows": 9}, {"columns": 6148}, {"depth": 4096 + 128}, {"dtype": DType.FLOAT32}, {"depth": 0}],
)
def test_what_leaves_a_rest_is_not_taken(other: dict[str, int]) -> None:
    assert takes(PRODUCT, CONFIG)
    assert not takes(replace(PRODUCT, **other), CONFIG)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("block", [(128, 64), (24, 128), (8, 128)])
def test_blocks_of_scales_must_be_shared_by_a_line_and_by_a_tile(block: tuple[int, int]) -> None:
    config = Lines(16, 1, 8, 2)
    assert scaled_takes(replace(PRODUCT, block=BLOCK), config)
    assert not scaled_takes(replace(PRODUCT, block=block), config)


def plan(arch: str) -> LaunchPlan:
    sizes = ((PRODUCT.rows, PRODUCT.depth), (PRODUCT.columns, PRODUCT.depth))
    x, weight = (operand(*size) for size in sizes)
    call = CallLayout((x, weight, None), (operand(PRODUCT.rows, PRODUCT.columns),), {}, arch)
    return plan_product(call, PRODUCT, CONFIG)


def operand(rows: int, columns: int) -> Operand:
    return Operand(TensorType(DType.BFLOAT16, (rows, columns)), (columns, 1), 256)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_compiles_without_a_gpu_to_the_same_bytes(arch: str) -> None:
    (launch,) = plan(arch).launches
    first, second = (compile_function(launch.function, arch) for _ in range(2))
    assert first == second
    assert first.symbol == "lines"
