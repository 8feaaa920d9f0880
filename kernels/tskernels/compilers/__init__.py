"""Compiling kernels ahead of time, without a GPU: one cubin for each function."""

from __future__ import annotations

from tskernels.compilers.nvrtc import compile_cuda
from tskernels.compilers.triton import compile_triton
from tskernels.cubin import Cubin
from tskernels.launch import Compiled, CudaFunction


def compile_function(function: Compiled, arch: str) -> Cubin:
    """The cubin of `function` for `arch`, such as `sm_90`.

    CompilerMissing where its compiler is not installed; CubinError where it cannot be compiled.
    """
    if isinstance(function, CudaFunction):
        return compile_cuda(function, arch)
    return compile_triton(function, arch)
