"""Compiled kernels: what the runtime loads, and why one may not compile."""

from __future__ import annotations

from dataclasses import dataclass

from tskernels.errors import TsError


class CompilerMissing(TsError):
    """A compiler of kernels is not installed."""

    code = "TS0406"
    summary = "A plan for a GPU is built where a compiler of its kernels is not installed."


class CubinError(TsError):
    """A kernel cannot be compiled for the target."""

    code = "TS0407"
    summary = "A kernel cannot be compiled for the GPU that the plan is built for."


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled function: its code, entry point, and what a block of it needs.

    `shared_bytes` are of dynamic shared memory. A launch passes the function's maps and pointers,
    then two null pointers, for areas that Triton's functions may ask for and these do not.
    """

    data: bytes
    symbol: str
    shared_bytes: int
    num_warps: int
