"""Hopper's products with a ring: their source run by this machine's threads, and their plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hopper_source import PACKAGE, built, place
from measured_products import measured
from torch import Tensor

from tskernels.compilers import compile_function
from tskernels.compilers.nvrtc import compile_cuda
from tskernels.cubin import CubinError
from tskernels.launch import ALIGNED, CallLayout, CudaFunction, Launch, Operand
from tskernels.ops.linear.configs import FewRows, few_rows
from tskernels.ops.linear.cuda import aligned, plain_product, plan_product
from tskernels.ops.linear.product import Product, block_of
from tskernels.ops.linear.rings import Ring, ring_candidates, ring_takes
from tskernels.schema import DType, TensorType


def operand(*shape: int) -> Operand:
    return Operand(TensorType(DType.BFLOAT16, shape), (shape[1], 1) if shape[1:] else (1,), ALIGNED)


def call(rows: int, columns: int, depth: int, *, gated: bool, bias: bool = False) -> CallLayout:
    height = 2 * columns if gated else columns
    inputs = (operand(rows, depth), operand(height, depth), operand(height) if bias else None)
    return CallLayout(inputs, (operand(rows, columns),), {}, "sm_90")


def planned(layout: CallLayout, config: Ring, *, gated: bool) -> Launch:
    (launch,) = plan_product(layout, plain_product(layout, gated=gated), config).launches
    return launch


def run_here(launch: Launch, folder: Path, inputs: tuple[Tensor, ...], y: Tensor) -> None:
    """Run the source of the launch on this machine's threads."""
    assert isinstance(launch.function, CudaFunction)
    run = built(launch.function, "ring_host.cpp", folder)
    assert run(*map(place, (*inputs, y)), launch.grid[0]), "an input was read too early"


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "gated", "bias", "config"),
    [
        (64, 128, 384, False, False, Ring(1, 4, 2)),
        (9, 256, 256, False, True, Ring(2, 3, 1)),
        (33, 192, 256, True, False, Ring(3, 3, 1)),
        (17, 64, 256, True, True, Ring(1, 2, 2)),
        (21, 320, 192, False, True, Ring(1, 4, 1, tiles=2)),
    ],
)
def test_the_source_agrees_with_the_product(
    tmp_path: Path, rows: int, columns: int, depth: int, *, gated: bool, bias: bool, config: Ring
) -> None:
    torch.manual_seed(rows)  # pyright: ignore[reportUnknownMemberType]
    height = 2 * columns if gated else columns
    x, weight = torch.randn(rows, depth).bfloat16(), torch.randn(height, depth).bfloat16()
    added = torch.randn(height).bfloat16()
    beyond = torch.full((rows + 1, columns), float("nan")).bfloat16()
    y = beyond[:rows]
    launch = planned(call(rows, columns, depth, gated=gated, bias=bias), config, gated=gated)
    run_here(launch, tmp_path, (x, weight, added), y)
    wanted = x.double() @ weight.double().T + (added.double() if bias else 0.0)
    if gated:
        wanted = torch.nn.functional.silu(wanted[:, :columns]) * wanted[:, columns:]
    torch.testing.assert_close(y.double(), wanted, rtol=2**-7, atol=1e-3)
    assert beyond[rows].isnan().all()


def test_a_plan_has_the_maps_and_the_memory_that_the_kernel_needs() -> None:
    launch = planned(call(33, 12288, 4096, gated=True), Ring(3, 6, 1), gated=True)
    assert isinstance(launch.function, CudaFunction)
    assert launch.grid == (128, 1, 1)
    assert [m.box for m in launch.maps] == [(64, 64), (32, 64)]
    assert [m.address.space for m in launch.maps] == ["input", "input"]
    assert launch.function.num_warps == 13
    assert launch.function.shared_bytes == 2048 + 6 * (192 + 64) * 128


def test_the_cubin_is_the_same_each_time_and_whatever_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = planned(call(64, 4096, 4096, gated=False), Ring(1, 12, 2), gated=False).function
    assert isinstance(function, CudaFunction)
    first, second = (compile_function(function, "sm_90") for _ in range(2))
    assert first == second
    assert (first.symbol, first.num_warps) == ("ring", 5)
    for file in (function.source, "hopper/device.h"):
        copy = tmp_path / "another" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((PACKAGE / file).read_bytes())
    monkeypatch.setattr("tskernels.compilers.nvrtc._PACKAGE", tmp_path / "another")
    assert compile_cuda(function, "sm_90") == first


def test_constants_that_do_not_come_out_even_are_refused_by_the_source() -> None:
    function = planned(call(64, 4096, 4096, gated=False), Ring(1, 12, 2), gated=False).function
    assert isinstance(function, CudaFunction)
    odd = tuple((k, 4090 if k == "COLUMNS" else v) for k, v in function.constants)
    with pytest.raises(CubinError, match="blocks come out even"):
        compile_function(replace(function, constants=odd), "sm_90")


@pytest.mark.parametrize("product", measured(lambda e: "row_blocks" in e), ids=lambda p: p.key)
def test_every_measured_ring_is_one_that_the_kernel_takes(product: Product) -> None:
    config = few_rows(product, "sm_90")
    assert isinstance(config, Ring)
    assert ring_takes(product, config)


def test_every_candidate_is_one_that_the_kernel_takes() -> None:
    for rows in (9, 32, 64):
        found = list(ring_candidates(Product(rows, 6144, 4096, DType.BFLOAT16, gated=False)))
        assert found
        for config in found:
            assert config.shared_bytes(block_of(rows)) <= 232_448
            planned(call(rows, 6144, 4096, gated=False), config, gated=False)
    assert not list(ring_candidates(Product(64, 48, 64, DType.BFLOAT16, gated=False)))
    assert not list(ring_candidates(Product(8, 6144, 4096, DType.BFLOAT16, gated=False)))
    assert not ring_takes(Product(64, 100, 4096, DType.BFLOAT16, gated=False), Ring(1, 4, 1))
    assert not ring_takes(Product(64, 128, 4128, DType.BFLOAT16, gated=False), Ring(1, 4, 1))
    assert not ring_takes(Product(64, 128, 4096, DType.FLOAT32, gated=False), Ring(1, 4, 1))


def test_rows_that_the_copy_engine_cannot_fetch_take_another_kernel() -> None:
    product = Product(64, 4096, 4096, DType.BFLOAT16, gated=False)
    assert isinstance(few_rows(product, "sm_90"), Ring)
    assert isinstance(few_rows(product, "sm_90", aligned=False), FewRows)
    layout = call(64, 4096, 4096, gated=False)
    assert aligned(layout)
    x = layout.input(0)
    for odd in (replace(x, strides=(4100, 1)), replace(x, alignment=8)):
        assert not aligned(replace(layout, inputs=(odd, *layout.inputs[1:])))
