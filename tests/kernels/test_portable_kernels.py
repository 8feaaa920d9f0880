"""Every op of a dense model on one GPU has a kernel for any GPU and float type; all compile."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import triton
from kernel_checks import CASES, COMPUTE, outputs_of, query
from triton_runs import DTYPES, Run, layout, runs

from tskernels.compilers import compile_function
from tskernels.kernel import BANDS, KernelSpec
from tskernels.launch import Compiled
from tskernels.registry import REGISTRY
from tskernels.schema import DType
from tskernels.selection import misfit

ARCHS = ("sm_80", "sm_90", "sm_100")

LATER = {
    "latent_write", "mla", "route", "experts", "dispatch", "combine", "mask", "slice", "permute",
}  # fmt: skip
"""Ops of latent attention, experts and several GPUs, which the CUDA target has no kernels for."""

PRODUCTS = {
    "linear", "linear_silu_mul", "scaled_linear", "scaled_linear_silu_mul", "attention",
}  # fmt: skip

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def is_portable(spec: KernelSpec) -> bool:
    return spec.priority in BANDS["PORTABLE"]


@pytest.mark.parametrize("op", sorted(set(COMPUTE) - LATER))
@pytest.mark.parametrize("arch", ARCHS)
def test_a_portable_kernel_takes_every_case(op: str, arch: str) -> None:
    portable = [spec for spec in REGISTRY.of(op) if is_portable(spec) and spec.launches is not None]
    for dtype in DTYPES:
        for make in CASES[op]:
            asked = query(op, make(dtype.torch), "cuda", arch)
            reasons = [misfit(spec, asked) for spec in portable]
            assert None in reasons, (dtype, asked.shapes, reasons)


def functions(arch: str, dtype: DType, *, first: bool) -> Iterator[tuple[Run, Compiled]]:
    """What is compiled of every solution's cases, each function once; or of its first case."""
    seen: set[Compiled] = set()
    begun: set[str] = set()
    for run in runs(arch, (dtype,)):
        if first and run.spec.name in begun:
            continue
        begun.add(run.spec.name)
        case = run.make(dtype.torch)
        assert run.spec.launches is not None
        plan = run.spec.launches(layout(run.spec, case, outputs_of(run.spec.op, case), arch))
        for launch in plan.launches:
            if launch.function not in seen:
                seen.add(launch.function)
                yield run, launch.function


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_solution_compiles_without_a_gpu(arch: str, dtype: DType) -> None:
    """A solution that makes no sense for `arch` must not claim to take its cases."""
    names: set[str] = set()
    for run, function in functions(arch, dtype, first=False):
        assert compile_function(function, arch).data.startswith(b"\x7fELF"), run.name
        names.add(run.spec.name)
    assert len(names) > 20


def test_products_of_float32_are_not_rounded_to_tf32(tmp_path: Path) -> None:
    """By the machine code: no matrix instruction in kernels of float32, some in bfloat16's."""
    found: dict[DType, set[str]] = {}
    for dtype in (DType.FLOAT32, DType.BFLOAT16):
        code = ""
        for run, function in functions("sm_80", dtype, first=True):
            if is_portable(run.spec) and run.spec.op in PRODUCTS:
                path = tmp_path / f"{run.name}.cubin"
                path.write_bytes(compile_function(function, "sm_80").data)
                dump = subprocess.run([CUOBJDUMP, "--dump-sass", path], capture_output=True)
                code += dump.stdout.decode()
        found[dtype] = set(re.findall(r"\b(HMMA\S*|FFMA)\b", code))
    assert found[DType.FLOAT32] == {"FFMA"}
    assert any(name.startswith("HMMA") for name in found[DType.BFLOAT16])
