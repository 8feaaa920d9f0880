"""Compiling CUDA C++ ahead of time by NVRTC, which needs no GPU.

The bytes follow from the sources, the constants and NVRTC's version alone: no line information,
which would hold paths.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from tskernels.capabilities import SHARED_BYTES
from tskernels.cubin import CompilerMissing, Cubin, CubinError
from tskernels.launch import CudaFunction

_PACKAGE: Final = Path(__file__).parents[1]


def compile_cuda(function: CudaFunction, arch: str) -> Cubin:
    """The cubin of `function` for `arch`, such as `sm_90`, with what that one alone has.

    CompilerMissing without NVRTC; CubinError where the function does not compile, or needs more
    than the GPU has.
    """
    if function.shared_bytes > SHARED_BYTES[arch]:
        raise CubinError(
            f"{function.name} of {function.source} takes {function.shared_bytes} bytes of shared"
            f" memory, but a block has {SHARED_BYTES[arch]} on {arch}",
            remedy="pin another kernel, or give this one a smaller ring",
        )
    core, file = _core(), _PACKAGE / function.source
    options = core.ProgramOptions(
        arch=f"{arch}a",
        std="c++17",
        define_macro=[(name, _literal(value)) for name, value in function.constants],
        include_path=[str(_PACKAGE / "hopper"), str(file.parent)],
    )
    try:
        code = core.Program(file.read_text(), "c++", options).compile("cubin").code
    except Exception as error:  # the library has no type for its compiler's complaints
        raise CubinError(
            f"{function.name} of {function.source} does not compile for {arch}: {error}",
            remedy="report it, with the recipe; pin another kernel meanwhile",
        ) from error
    return Cubin(bytes(code), function.name, function.shared_bytes, function.num_warps)


def _literal(value: float) -> str:
    return f"{value!r}f" if isinstance(value, float) else str(value)


def _core() -> Any:  # noqa: ANN401 (untyped, and optional)
    try:
        core = importlib.import_module("cuda.core")
        importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except (ImportError, RuntimeError):
        raise CompilerMissing(
            "a kernel in CUDA C++ is compiled by NVRTC through cuda-core, which are not installed",
            remedy="pip install 'tscompile[cuda]'",
        ) from None
    return core
