"""The fused ops in native float32: one round of the threads where their parts take one each."""

from __future__ import annotations

import torch

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import grid
from tskernels.ops.attention.native import bind_kv_write
from tskernels.ops.elementwise.native import bind_add
from tskernels.ops.norm.native import bind_rms_norm
from tskernels.ops.rotary.native import HALVES, bind_rotary
from tskernels.signatures import float32, indices


def bind_add_rms_norm(call: BoundCall) -> Kernel:
    """Sum of a and b [T, H], and its norm, a row at a time."""
    a, b, weight = (call.tensor(i) for i in range(3))
    total, normed = call.outputs
    return _cpu.in_rows(
        bind_add(BoundCall((a, b), (total,), {})),
        bind_rms_norm(BoundCall((total, weight), (normed,), call.attributes)),
    )


def bind_linear_silu_mul(call: BoundCall) -> Kernel:
    """Some columns of gate and up, and of what they give, at a time."""
    tensor = call.tensor(0)
    x, weight, y = grid(tensor), grid(call.tensor(1)), grid(call.outputs[0])
    bias, both = call.inputs[2], tensor.new_empty(x.extent[0], weight.extent[0])
    return _cpu.linear_silu_mul(
        x.address,
        x.strides[0],
        weight.address,
        weight.strides[0],
        0 if bias is None else grid(bias).address,
        both.data_ptr(),
        y.address,
        y.strides[0],
        shape=(x.extent[0], weight.extent[0] // 2, weight.extent[2]),
        keep=(call, both),
    )


def bind_rope_kv_write(call: BoundCall) -> Kernel:
    """Rotate a row's query and key, and write that key and its value."""
    query, key, value, table, cache, slots = (call.tensor(i) for i in range(6))
    turned = torch.empty_like(key, memory_format=torch.contiguous_format)
    return _cpu.in_rows(
        bind_rotary(BoundCall((query, table), (call.outputs[0],), {})),
        bind_rotary(BoundCall((key, table), (turned,), {})),
        bind_kv_write(BoundCall((turned, value, cache, slots), (cache,), {})),
    )


def bind_qk_norm_rope_kv_write(call: BoundCall) -> Kernel:
    """The same after norms of the row's heads; rotation is in place."""
    query, key, value, query_weight, key_weight, table, cache, slots = (
        call.tensor(i) for i in range(8)
    )
    turned = torch.empty_like(key, memory_format=torch.contiguous_format)
    y = call.outputs[0]
    return _cpu.in_rows(
        bind_rms_norm(BoundCall((query, query_weight), (y,), call.attributes)),
        bind_rotary(BoundCall((y, table), (y,), {})),
        bind_rms_norm(BoundCall((key, key_weight), (turned,), call.attributes)),
        bind_rotary(BoundCall((turned, table), (turned,), {})),
        bind_kv_write(BoundCall((turned, value, cache, slots), (cache,), {})),
    )


_HEADS = {**float32("query", "key", "value", "table", "cache"), **indices("slot_mapping")}

SPECS = (
    KernelSpec(
        "add_rms_norm", "native", bind_add_rms_norm, PERFORMANT, float32("a", "b", "weight")
    ),
    KernelSpec(
        "linear_silu_mul",
        "native",
        bind_linear_silu_mul,
        PERFORMANT,
        float32("x", "weight", "bias"),
    ),
    KernelSpec("rope_kv_write", "native", bind_rope_kv_write, PERFORMANT, _HEADS, traits=(HALVES,)),
    KernelSpec(
        "qk_norm_rope_kv_write",
        "native",
        bind_qk_norm_rope_kv_write,
        PERFORMANT,
        {**_HEADS, **float32("query_weight", "key_weight")},
        traits=(HALVES,),
    ),
)
