"""The fused ops in torch: the solutions of their parts, one after another."""

from __future__ import annotations

import torch

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.ops.attention.torch import bind_kv_write
from tskernels.ops.elementwise.torch import bind_add, bind_silu_mul
from tskernels.ops.linear.torch import bind_linear
from tskernels.ops.norm.torch import bind_rms_norm
from tskernels.ops.rotary.torch import bind_rotary
from tskernels.signatures import WIDE_FLOATS, floats, indices


def bind_add_rms_norm(call: BoundCall) -> Kernel:
    """Sum of a and b [T, H], and its norm."""
    a, b, weight = (call.tensor(i) for i in range(3))
    total, normed = call.outputs
    return in_turn(
        bind_add(BoundCall((a, b), (total,), {})),
        bind_rms_norm(BoundCall((total, weight), (normed,), call.attributes)),
    )


def bind_linear_silu_mul(call: BoundCall) -> Kernel:
    """Gate and up [T, 2F] by one product into a buffer of its own, then silu(gate) * up."""
    x, weight, y = call.tensor(0), call.tensor(1), call.outputs[0]
    both = x.new_empty(x.shape[0], weight.shape[0])
    gate, up = both.chunk(2, dim=1)
    return in_turn(
        bind_linear(BoundCall(call.inputs, (both,), {})),
        bind_silu_mul(BoundCall((gate, up), (y,), {})),
    )


def bind_rope_kv_write(call: BoundCall) -> Kernel:
    """Rotate the query into its output, the key into a buffer and from there into the cache."""
    query, key, value, table, cache, slots = (call.tensor(i) for i in range(6))
    turned = torch.empty_like(key, memory_format=torch.contiguous_format)
    return in_turn(
        bind_rotary(BoundCall((query, table), (call.outputs[0],), call.attributes)),
        bind_rotary(BoundCall((key, table), (turned,), call.attributes)),
        bind_kv_write(BoundCall((turned, value, cache, slots), (cache,), {})),
    )


def bind_qk_norm_rope_kv_write(call: BoundCall) -> Kernel:
    """Norm query and key into buffers of their own, then as `bind_rope_kv_write`."""
    query, key, value, query_weight, key_weight, *rest = (call.tensor(i) for i in range(8))
    normed = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key)]
    return in_turn(
        bind_rms_norm(BoundCall((query, query_weight), (normed[0],), call.attributes)),
        bind_rms_norm(BoundCall((key, key_weight), (normed[1],), call.attributes)),
        bind_rope_kv_write(BoundCall((*normed, value, *rest), call.outputs, call.attributes)),
    )


def in_turn(*kernels: Kernel) -> Kernel:
    """One kernel that runs `kernels` one after another."""

    def run() -> None:
        for kernel in kernels:
            kernel()

    return run


_HEADS = {**floats("query", "key", "value", "cache"), "table": WIDE_FLOATS}

SPECS = (
    KernelSpec("add_rms_norm", "torch", bind_add_rms_norm, PORTABLE, floats("a", "b", "weight")),
    KernelSpec(
        "linear_silu_mul", "torch", bind_linear_silu_mul, PORTABLE, floats("x", "weight", "bias")
    ),
    KernelSpec(
        "rope_kv_write",
        "torch",
        bind_rope_kv_write,
        PORTABLE,
        {**_HEADS, **indices("slot_mapping")},
    ),
    KernelSpec(
        "qk_norm_rope_kv_write",
        "torch",
        bind_qk_norm_rope_kv_write,
        PORTABLE,
        {**_HEADS, **floats("query_weight", "key_weight"), **indices("slot_mapping")},
    ),
)
