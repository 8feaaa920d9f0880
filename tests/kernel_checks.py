"""Comparing kernels with the reference of their op."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from kernel_cases import DENSE, Case, Make
from kernel_cases_moe import MOE
from torch import Tensor

from tskernels.kernel import Device, KernelQuery, Mode
from tskernels.op import resolve_attributes, tensor_type
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, DType, OpKind, TensorType

CASES: Mapping[str, tuple[Make, ...]] = {**DENSE, **MOE}

COMPUTE = tuple(n for n, op in OPS.items() if op.schema.kind is OpKind.COMPUTE)

TOLERANCE = {
    DType.FLOAT32: 2e-6,
    DType.BFLOAT16: 2e-2,
    DType.FLOAT16: 3e-3,
    DType.FLOAT64: 1e-13,
}
"""Largest difference from the reference, relative to the reference's largest value."""


def query(
    op: str, case: Case, device: Device = "cpu", arch: str = "x86_64", mode: Mode = "extend"
) -> KernelQuery:
    """What the compiler asks of the case's op."""
    types = [None if x is None else tensor_type(x) for x in case.inputs]
    attributes = attributes_of(op, case)
    dtypes = tuple(t and t.dtype for t in types)
    shapes = tuple(t and t.shape for t in types)
    return KernelQuery(op, mode, dtypes, shapes, device, arch, attributes)


def attributes_of(op: str, case: Case) -> Mapping[str, AttributeValue]:
    """The case's attributes, defaults filled in."""
    return resolve_attributes(OPS[op].schema, case.attributes)


def expected(op: str, case: Case) -> tuple[Tensor, ...]:
    """The reference, computed in float64 on the same numbers.

    Except for rotary_table: that angles round to float32 is part of what it computes.
    """
    widen = op != "rotary_table"
    wide = [
        x.double() if widen and x is not None and x.is_floating_point() else x for x in case.inputs
    ]
    result = OPS[op].schema.reference(*wide, **case.attributes)
    return result if isinstance(result, tuple) else (result,)


def outputs_of(op: str, case: Case) -> tuple[Tensor, ...]:
    """What a kernel writes to: tensors that hold nothing yet, or the inputs that it mutates."""
    schema = OPS[op].schema
    types: list[TensorType | None] = [None if x is None else tensor_type(x) for x in case.inputs]
    mutated = {o: case.inputs[i] for o, i in (schema.mutates or {}).items()}
    inferred = schema.infer(types, attributes_of(op, case))
    return tuple(mutated.get(i) if i in mutated else _unwritten(t) for i, t in enumerate(inferred))  # pyright: ignore[reportReturnType]


def _unwritten(type_: TensorType) -> Tensor:
    """NaN, or for integers a value that no op gives."""
    nothing = float("nan") if type_.dtype.torch.is_floating_point else -99
    return torch.full(type_.shape, nothing, dtype=type_.dtype.torch)


def assert_close(got: Tensor, want: Tensor, tolerance: float) -> None:
    """Shapes equal, nothing NaN, and no difference above `tolerance` of the largest value."""
    assert got.shape == want.shape
    assert not got.isnan().any()
    largest = want.abs().max().item() if want.numel() else 0.0
    error = (got.double() - want).abs().max().item() if want.numel() else 0.0
    assert error <= tolerance * largest, f"off by {error:.3g}, largest value {largest:.3g}"
