"""Tuning: the products of a plan that have few rows, and the fastest block sizes for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from math import prod
from multiprocessing import get_context

import torch
from torch import Tensor

from tskernels.cubin import Cubin, CubinError, compile_function
from tskernels.device import cuda_arch
from tskernels.errors import TsError
from tskernels.launch import CallLayout, LaunchPlan, Operand
from tskernels.ops.linear.configs import FewRows, OneRow, Product, candidates
from tskernels.ops.linear.cuda import plan_product
from tskernels.schema import DType, TensorType
from tskernels.tuning.measure import Stopwatch
from tsruntime.artifact.schema import Plan, Target

_ROTATION = 400_000_000
"""Bytes of weights that are read before the first ones come again, far beyond any cache."""

_PIN = "triton_rows"


class NothingToMeasure(TsError):
    """The machine has no GPU of the target's architecture."""

    code = "TS0409"
    summary = "`tscompile tune` needs a GPU of the recipe's architecture."


def measured_on(target: Target) -> str:
    """The GPU's name; NothingToMeasure unless it is of the target's architecture."""
    here = cuda_arch(0) if torch.cuda.is_available() else "no GPU"
    if target.device != "cuda" or here != target.arch:
        raise NothingToMeasure(
            f"the recipe is for {target.device} {target.arch}, this machine has {here}",
            remedy="run it on the GPU that the recipe names",
            where="target.arch",
        )
    return torch.cuda.get_device_name(0)


def products(plan: Plan) -> Iterator[Product]:
    """Every product that the kernel for few rows is pinned to, with repeats."""
    for program in plan.programs:
        shapes = {value.name: value for value in program.values}
        for op in program.ops:
            if op.pin.partition(".")[2] == _PIN and op.inputs[0] is not None:
                x, y = shapes[op.inputs[0]], shapes[op.outputs[0]]
                gated = op.op == "linear_silu_mul"
                yield Product(x.shape[0], y.shape[1], x.shape[1], x.dtype, gated)


def tuned(
    wanted: Sequence[Product], arch: str
) -> Iterator[tuple[Product, OneRow | FewRows, float]]:
    """For each product the fastest of its candidates, and its microseconds, in order.

    Candidates are compiled on all cores while those of products before are measured.
    """
    watch = Stopwatch(arch)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        asked = [_submitted(pool, product, arch) for product in wanted]
        for product, options in zip(wanted, asked, strict=True):
            calls = _tensors(product)
            times = {
                option: watch.microseconds(plan, cubins, calls)
                for option, plan, future in options
                if (cubins := future.result())
            }
            best = min(times, key=times.__getitem__)
            yield product, best, times[best]


def _submitted(
    pool: ProcessPoolExecutor, product: Product, arch: str
) -> list[tuple[OneRow | FewRows, LaunchPlan, Future[tuple[Cubin, ...]]]]:
    call = _call(product, arch)
    plans = [(option, plan_product(call, product, option)) for option in candidates(product)]
    return [(option, plan, pool.submit(_compile, arch, plan)) for option, plan in plans]


def _compile(arch: str, plan: LaunchPlan) -> tuple[Cubin, ...]:
    """The cubins of the plan's launches; none where one takes more than the GPU has."""
    try:
        return tuple(compile_function(launch.function, arch) for launch in plan.launches)
    except CubinError:
        return ()


def _call(product: Product, arch: str) -> CallLayout:
    weight = product.columns * (2 if product.gated else 1)
    x = _operand(product.dtype, product.rows, product.depth)
    y = _operand(product.dtype, product.rows, product.columns)
    return CallLayout((x, _operand(product.dtype, weight, product.depth), None), (y,), {}, arch)


def _operand(dtype: DType, *shape: int) -> Operand:
    strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    return Operand(TensorType(dtype, shape), strides, 256)


def _tensors(product: Product) -> Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]]:
    """Inputs and outputs of some calls, each with a weight of its own."""
    kind = product.dtype.torch
    rows = product.columns * (2 if product.gated else 1)
    size = rows * product.depth * product.dtype.itemsize
    x = torch.randn(product.rows, product.depth, device="cuda").to(kind)
    y = torch.empty(product.rows, product.columns, device="cuda", dtype=kind)
    count = max(2, min(16, _ROTATION // size + 1))
    weights = torch.randn(count, rows, product.depth, device="cuda", dtype=kind)
    return [((x, weight), (y,)) for weight in weights]
