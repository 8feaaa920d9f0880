"""Compiling Triton functions ahead of time: one cubin each, without a GPU.

The bytes follow from the source, its constants and Triton's version alone: no line information,
which would hold paths.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from tskernels.capabilities import SHARED_BYTES
from tskernels.cubin import CompilerMissing, Cubin, CubinError
from tskernels.launch import ALIGNED, Function
from tskernels.schema import DType

_TYPES: Final = {
    DType.FLOAT32: "fp32",
    DType.BFLOAT16: "bf16",
    DType.FLOAT16: "fp16",
    DType.INT32: "i32",
    DType.INT64: "i64",
    DType.FLOAT64: "fp64",
    DType.FLOAT8_E4M3: "u8",  # its bits, which kernels decode: older GPUs have no such type
}


def compile_triton(function: Function, arch: str) -> Cubin:
    """The cubin of `function` for `arch`, such as `sm_90`.

    CompilerMissing without Triton; CubinError where the function needs more than the GPU has.
    """
    triton = _triton()
    source = _source(triton, function)
    target = triton.backends.compiler.GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    options = {
        "num_warps": function.num_warps,
        "num_stages": function.num_stages,
        "enable_fp_fusion": not function.rounds_products,
    }
    try:
        compiled = triton.compile(source, target=target, options=options)
    except triton.CompilationError as error:
        raise CubinError(
            f"{function.name} of {function.module} does not compile for {arch}: {error}",
            remedy="report it, with the recipe; pin another kernel meanwhile",
        ) from error
    metadata = compiled.metadata
    if metadata.shared > SHARED_BYTES[arch]:
        raise CubinError(
            f"{function.name} of {function.module} takes {metadata.shared} bytes of shared memory,"
            f" but a block has {SHARED_BYTES[arch]} on {arch}",
            remedy="pin another kernel, or give this one smaller blocks",
        )
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        raise CubinError(
            f"{function.name} of {function.module} asks for a scratch area of Triton's own",
            remedy="have the kernel use the launch's scratch area",
        )
    return Cubin(compiled.asm["cubin"], metadata.name, metadata.shared, metadata.num_warps)


def _triton() -> Any:  # noqa: ANN401 (untyped, and optional)
    try:
        triton = importlib.import_module("triton")
        importlib.import_module("triton.backends.compiler")
    except ImportError:
        raise CompilerMissing(
            "kernels for CUDA are compiled by Triton, which is not installed",
            remedy="pip install 'tscompile[cuda]'",
        ) from None
    triton.knobs.compilation.disable_line_info = True
    return triton


def triton_version() -> str:
    """Version of the Triton that compiles; CompilerMissing without it."""
    return str(_triton().__version__)


def _source(triton: Any, function: Function) -> object:  # noqa: ANN401
    jitted = getattr(importlib.import_module(function.module), function.name)
    names: list[str] = jitted.arg_names
    pointers = names[: len(function.pointers)]
    constants = dict(function.constants)
    if names[len(pointers) :] != [n for n in names if n in constants] or len(names) != len(
        pointers
    ) + len(constants):
        raise TypeError(
            f"{function.module}.{function.name} takes {names}, was given {len(pointers)} pointers"
            f" and {sorted(constants)}"
        )
    signature = {
        name: f"*{_TYPES[pointer.dtype]}"
        for name, pointer in zip(pointers, function.pointers, strict=True)
    }
    signature |= dict.fromkeys(names[len(pointers) :], "constexpr")
    attributes = {
        (i,): [["tt.divisibility", ALIGNED]]
        for i, pointer in enumerate(function.pointers)
        if pointer.aligned
    }
    kind = _gluon_source() if jitted.is_gluon() else triton.compiler.ASTSource
    return kind(jitted, signature, constants, attributes)


def _gluon_source() -> Any:  # noqa: ANN401
    return importlib.import_module("triton.experimental.gluon._runtime").GluonASTSource
