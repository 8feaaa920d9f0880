"""Runs Triton solutions on cases; as a program, by Triton's interpreter on the CPU.

`TRITON_INTERPRET=1 python triton_runs.py` prints a JSON object: an empty text for every run that
agrees with the reference, else what is wrong. Triton reads the variable when a kernel is defined.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import gluon_interpreter
import numpy as np
import torch
from kernel_cases import Case, Make, seed
from kernel_checks import (
    CASES,
    COMPUTE,
    TOLERANCE,
    assert_close,
    attributes_of,
    expected,
    outputs_of,
    query,
)
from numpy.typing import NDArray
from torch import Tensor

from tskernels.kernel import KernelQuery, KernelSpec, Trait
from tskernels.launch import Address, CallLayout, Function, LaunchPlan, Operand
from tskernels.op import tensor_type
from tskernels.ops.attention.configs import Decode, Heads, Units, takes_units
from tskernels.ops.attention.cuda import by_units, plan_shares
from tskernels.ops.linear.configs import Lines, OneRow, few_rows, takes
from tskernels.ops.linear.cuda import aligned, plain_product, plan_product
from tskernels.ops.linear.product import Product
from tskernels.ops.linear.rings import Ring, ring_takes
from tskernels.ops.linear.scaled_configs import scaled_takes
from tskernels.ops.linear.scaled_cuda import plan_scaled_product, scaled_product
from tskernels.registry import REGISTRY
from tskernels.schema import DType
from tskernels.selection import misfit


class _Handle(Protocol):
    """What is used of a value of Triton's interpreter, which holds bfloat16 as uint16."""

    data: NDArray[np.generic]
    dtype: object


def repair_interpreter() -> None:
    """Have the interpreter multiply bfloat16 as numbers; Triton 3.7 multiplies the words.

    And have it replace the language's functions once, not at each call of a device function.
    """
    gluon_interpreter.install()
    interpreter = importlib.import_module("triton.runtime.interpreter")
    language = importlib.import_module("triton.language")
    _replace_once(interpreter, language)
    builder = interpreter.InterpreterBuilder
    original = builder.create_dot

    def widened(handle: _Handle) -> _Handle:
        if handle.dtype != language.bfloat16:
            return handle
        words = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(words.view(np.float32), language.float32)

    def create_dot(self: object, a: _Handle, b: _Handle, *rest: object) -> object:
        return original(self, widened(a), widened(b), *rest)

    builder.create_dot = create_dot


def _replace_once(interpreter: Any, language: ModuleType) -> None:
    replaced: set[int] = set()

    def call(function: Any, *args: object, **kwargs: object) -> object:
        names: dict[str, object] = function.fn.__globals__
        replaces = not any(value is language for value in names.values())  # a kernel's call did
        if replaces and id(names) not in replaced:
            replaced.add(id(names))
            interpreter._patch_lang(function.fn)
        return function.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


DTYPES = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)


@dataclass(frozen=True)
class Run:
    """One solution on one case."""

    spec: KernelSpec
    dtype: DType
    index: int
    make: Make

    @property
    def name(self) -> str:
        """As pytest would print it."""
        return f"{self.spec.name}-{self.dtype}-{self.index}"


def beside(op: str) -> Iterator[KernelSpec]:
    """Solutions as no plan has them: with block sizes that only a tuning table would give."""
    gated = op.endswith("silu_mul")
    for spec in REGISTRY.of(op):
        if spec.solution == "triton_rows":
            even = Trait("comes out even", partial(_comes_out_even, gated=gated))
            lines = replace(spec, traits=(*spec.traits, even), solution="lines")
            yield replace(lines, launches=partial(_lines, gated=gated))
            fewest = replace(spec, traits=(*spec.traits, ONE_ROW))
            for ahead in (0, 1, 3):
                launches = partial(_one_row, gated=gated, ahead=ahead)
                yield replace(fewest, solution=f"one_row_{ahead}", launches=launches)
        if spec.solution == "triton_rows" and not op.startswith("scaled"):
            hoppers = Trait("is Hopper's, and comes out even", partial(_takes_ring, gated=gated))
            ring = replace(spec, traits=(*spec.traits, hoppers), solution="ring")
            yield replace(ring, launches=partial(_ring, gated=gated))
        if spec.solution == "triton_decode":
            hoppers = Trait("is Hopper's, and has whole pages", _takes_units)
            yield replace(spec, traits=(*spec.traits, hoppers), solution="units", launches=_units)


def _lines_config(product: Product) -> Lines:
    return Lines(16, 1, 4, 2) if product.block else Lines(8, 2, 4, 3)


UNITS = Units(7, 3)


def _takes_units(query: KernelQuery) -> bool:
    """Of a query [T, heads, D] and a cache [pages, 2, kv_heads, page, D]."""
    x, cache, _, lengths = query.shapes[:4]
    assert x is not None
    assert cache is not None
    assert lengths is not None
    assert query.dtypes[0] is not None
    heads = Heads(x[0], cache[2], x[1] // cache[2], x[2], query.dtypes[0])
    return query.arch == "sm_90" and takes_units(heads, cache[3], lengths[0])


def _units(call: CallLayout) -> LaunchPlan:
    return plan_shares(call, UNITS if by_units(call) else Decode(1, 32, 4, 2))


RING = Ring(1, 4, 2)


def _takes_ring(query: KernelQuery, *, gated: bool) -> bool:
    return query.arch == "sm_90" and ring_takes(_product(query, gated=gated), RING)


def _ring(call: CallLayout, *, gated: bool) -> LaunchPlan:
    product = plain_product(call, gated=gated)
    config = RING if aligned(call) else few_rows(product, call.arch, aligned=False)
    return plan_product(call, product, config)


def _comes_out_even(query: KernelQuery, *, gated: bool) -> bool:
    product = _product(query, gated=gated)
    fits = scaled_takes if product.block else takes
    return fits(product, _lines_config(product))


def _product(query: KernelQuery, *, gated: bool) -> Product:
    x, weight = query.shapes[:2]
    assert x is not None
    assert weight is not None
    assert query.dtypes[0] is not None
    columns = weight[0] // 2 if gated else weight[0]
    block = query.attributes.get("block")
    return Product(x[0], columns, x[1], query.dtypes[0], gated, block)  # pyright: ignore[reportArgumentType]


def _lines(call: CallLayout, *, gated: bool) -> LaunchPlan:
    if call.attributes.get("block"):
        product = scaled_product(call, gated=gated)
        return plan_scaled_product(call, product, _lines_config(product))
    product = plain_product(call, gated=gated)
    return plan_product(call, product, _lines_config(product))


def _has_one_row(query: KernelQuery) -> bool:
    return query.shapes[0] is not None and query.shapes[0][0] == 1


ONE_ROW = Trait("takes one row", _has_one_row)


def _one_row(call: CallLayout, *, gated: bool, ahead: int) -> LaunchPlan:
    config = OneRow(4, 256, 4, ahead)
    if call.attributes.get("block"):
        return plan_scaled_product(call, scaled_product(call, gated=gated), config)
    return plan_product(call, plain_product(call, gated=gated), config)


def runs(arch: str, dtypes: tuple[DType, ...] = DTYPES) -> Iterator[Run]:
    """Every solution that has launches, on every case that it claims to take on `arch`."""
    seed(0)
    for op in COMPUTE:
        for spec in (*REGISTRY.of(op), *beside(op)):
            for dtype in dtypes if spec.launches is not None else ():
                for index, make in enumerate(CASES[op]):
                    case = make(dtype.torch)
                    mode = "decode" if _decodes(case) else "extend"
                    asked = query(op, case, "cuda", arch, mode)
                    if misfit(spec, asked) is None:
                        yield Run(spec, dtype, index, make)


def _decodes(case: Case) -> bool:
    """Whether no sequence of an attention has more than one row."""
    starts = case.inputs[4] if len(case.inputs) > 4 else None
    return starts is not None and starts.dim() == 1 and bool((starts.diff() <= 1).all())


def layout(spec: KernelSpec, case: Case, outputs: tuple[Tensor, ...], arch: str) -> CallLayout:
    """The call as the compiler would know it, from where the tensors lie."""
    inputs = tuple(None if x is None else _operand(x) for x in case.inputs)
    return CallLayout(inputs, tuple(map(_operand, outputs)), attributes_of(spec.op, case), arch)


def _operand(x: Tensor) -> Operand:
    alignment = x.data_ptr() & -x.data_ptr() if x.data_ptr() else 256
    return Operand(tensor_type(x), x.stride(), alignment)


def interpret(plan: LaunchPlan, case: Case, outputs: tuple[Tensor, ...]) -> None:
    """Run the launches on the CPU, the shared areas holding what they may."""
    scratch = torch.full((plan.scratch_bytes // 4,), float("nan"))
    counters = torch.zeros(plan.counter_bytes // 4, dtype=torch.int32)

    def point(address: Address) -> Tensor:
        match address.space:
            case "input":
                found = case.inputs[address.index]
                assert found is not None
                return found.view(torch.uint8) if found.dtype is torch.float8_e4m3fn else found
            case "output":
                return outputs[address.index]
            case "scratch":
                return scratch
            case "counters":
                return counters
            case "step" | "host":
                raise AssertionError("a Triton kernel reads nothing of the step's own")

    for launch in plan.launches:
        function = launch.function
        assert isinstance(function, Function), "only Triton's functions are interpreted"
        jitted = getattr(importlib.import_module(function.module), function.name)
        pointers = [point(address) for address in launch.addresses]
        jitted[launch.grid](*pointers, **dict(function.constants), num_warps=function.num_warps)
    assert not counters.any(), "a launch left its counters"


def check(run: Run, arch: str) -> None:
    """Raise unless the interpreted kernel agrees with the reference."""
    seed(7)
    case = run.make(run.dtype.torch)
    wanted = expected(run.spec.op, case)
    outputs = outputs_of(run.spec.op, case)
    assert run.spec.launches is not None
    plan = run.spec.launches(layout(run.spec, case, outputs, arch))
    interpret(plan, case, outputs)
    for got, want in zip(outputs, wanted, strict=True):
        assert_close(got[: case.rows], want[: case.rows], TOLERANCE[run.dtype])


def main() -> None:
    """Check the runs whose name holds the first argument; of those every n-th by the second."""
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    step = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    found: dict[str, str] = {}
    repair_interpreter()
    for run in [run for run in runs("sm_80") if part in run.name][::step]:
        try:
            check(run, "sm_80")
            found[run.name] = ""
        except Exception:
            found[run.name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
