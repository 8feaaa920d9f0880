# pyright: basic
"""Device functions that kernels of several families call."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def start_dependents(early: tl.constexpr):
    """Let the next kernel of the stream begin; it reads only weights until this one has ended."""
    if early:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(early: tl.constexpr):
    """Wait until the kernels before this one have ended and their writes are seen."""
    if early:
        gdc_wait()


@triton.jit
def prefetch(pointers):
    """Ask for the lines at `pointers` to be brought into the second-level cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def scaled_norm(wide, gain, width: tl.constexpr, eps: tl.constexpr):
    """RMS norm of one float32 row, zero beyond `width`, rounded to the gain's type, times it."""
    mean = tl.sum(wide * wide, 0) / width
    normed = (wide * tl.rsqrt(mean + eps)).to(gain.dtype)
    return (normed.to(tl.float32) * gain.to(tl.float32)).to(gain.dtype)


@triton.jit
def silu(x):
    """X * sigmoid(x) in float32."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def is_last(counter, count):
    """Whether `count` - 1 blocks were here before, whose writes this one then sees.

    The last one leaves the counter zero.
    """
    tl.debug_barrier()  # all threads' writes come before the one thread's release
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == count - 1
    if last:
        tl.store(counter, 0)
    return last
