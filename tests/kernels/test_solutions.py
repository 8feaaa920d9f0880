"""Every registered kernel of the CPU for every compute op against the op's reference."""

from __future__ import annotations

import pytest
from kernel_cases import Make, seed
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

from tskernels.kernel import BoundCall, KernelSpec
from tskernels.registry import REGISTRY
from tskernels.schema import DType
from tskernels.selection import misfit

DTYPES = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT64)


def runs() -> list[object]:
    """One parameter for each kernel, dtype and case that the kernel claims to take."""
    seed(0)
    found: list[object] = []
    for op in COMPUTE:
        for spec in REGISTRY.of(op):
            for dtype in DTYPES:
                for i, make in enumerate(CASES[op]):
                    if misfit(spec, query(spec.op, make(dtype.torch))) is None:
                        name = f"{spec.name}-{dtype}-{i}"
                        found.append(pytest.param(spec, dtype, make, id=name))
    return found


@pytest.mark.parametrize(("spec", "dtype", "make"), runs())
def test_agrees_with_the_reference(spec: KernelSpec, dtype: DType, make: Make) -> None:
    seed(7)
    case = make(dtype.torch)
    wanted = expected(spec.op, case)
    outputs = outputs_of(spec.op, case)
    kernel = spec.bind(BoundCall(case.inputs, outputs, attributes_of(spec.op, case)))
    kernel()
    kernel()  # a kernel is bound once and run many times
    for got, want in zip(outputs, wanted, strict=True):
        assert_close(got[: case.rows], want[: case.rows], TOLERANCE[dtype])


def test_every_compute_op_has_cases_and_three_kinds_of_solution() -> None:
    assert set(CASES) == set(COMPUTE)
    for op in COMPUTE:
        solutions = {spec.solution for spec in REGISTRY.of(op)}
        assert {"reference", "torch"} <= solutions
