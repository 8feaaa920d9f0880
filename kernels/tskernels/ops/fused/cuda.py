"""The fused ops in Triton: one launch each."""

from __future__ import annotations

from tskernels.capabilities import CUDA, WIDEST_ROW, strides
from tskernels.kernel import PORTABLE, KernelSpec, compiled
from tskernels.launch import CallLayout, LaunchBuilder, LaunchPlan, next_power_of_two
from tskernels.ops.norm.cuda import MODULE as NORM
from tskernels.ops.norm.cuda import norm_warps
from tskernels.ops.rotary.cuda import tail_block
from tskernels.signatures import device_floats, float32, indices

MODULE = "tskernels.ops.fused.triton"
_FEW_ROWS = 16
"""Rows up to which every head has a block of its own, so that there are many."""


def plan_add_rms_norm(call: CallLayout) -> LaunchPlan:
    """Sum of a and b [..., H], and its norm, a row at a time."""
    builder, a, b, y = LaunchBuilder(NORM, call), call.input(0), call.input(1), call.outputs[1]
    width = a.shape[-1]
    launch = builder.launch(
        "add_rms_norm",
        (a.shape[0], a.shape[1] if len(a.shape) == 3 else 1),
        (*builder.inputs(0, 1, 2), *builder.outputs(0, 1)),
        num_warps=norm_warps(width),
        width=width,
        **strides(a=a, b=b, y=y),
        eps=call.number("eps"),
        block=next_power_of_two(width),
    )
    return LaunchPlan((launch,))


def plan_rope_kv_write(call: CallLayout) -> LaunchPlan:
    """Rotate a row's query and key heads, and write that key and its value."""
    return _written(call, gains=None)


def plan_qk_norm_rope_kv_write(call: CallLayout) -> LaunchPlan:
    """The same after norms of the row's heads."""
    return _written(call, gains=(3, 4))


def _written(call: CallLayout, gains: tuple[int, int] | None) -> LaunchPlan:
    query, key, value = (call.input(i) for i in range(3))
    at = 3 if gains is None else 5  # of the table, then cache and slots
    table, cache, y = call.input(at), call.input(at + 1), call.outputs[0]
    width, turned = query.shape[2], table.shape[1]
    rows, heads, kv_heads = query.shape[0], query.shape[1], key.shape[1]
    block_h = 1 if rows <= _FEW_ROWS else min(8, next_power_of_two(kv_heads))
    builder = LaunchBuilder(MODULE, call)
    launch = builder.launch(
        "rope_kv_write",
        (rows, -(-heads // block_h) + -(-kv_heads // block_h)),
        (*builder.inputs(0, 1, 2, *(gains or (0, 0)), at, at + 1, at + 2), *builder.outputs(0)),
        num_warps=max(1, block_h // 2),
        normed=gains is not None,
        eps=0.0 if gains is None else call.number("eps"),
        interleaved=call.flag("interleaved"),
        heads=heads,
        kv_heads=kv_heads,
        width=width,
        turned=turned,
        page_size=cache.shape[3],
        **strides(query=query, key=key, value=value),
        table_row=table.strides[0],
        **strides(y=y),
        block_h=block_h,
        block=next_power_of_two(turned // 2),
        tail=tail_block(width, turned),
        whole=next_power_of_two(width),
    )
    return LaunchPlan((launch,))


_HEADS = {
    **device_floats("query", "key", "value", "cache"),
    **float32("table"),
    **indices("slot_mapping"),
}

SPECS = (
    KernelSpec(
        "add_rms_norm",
        "triton",
        compiled,
        PORTABLE,
        device_floats("a", "b", "weight"),
        CUDA,
        traits=(WIDEST_ROW,),
        launches=plan_add_rms_norm,
    ),
    KernelSpec(
        "rope_kv_write",
        "triton",
        compiled,
        PORTABLE,
        _HEADS,
        CUDA,
        launches=plan_rope_kv_write,
    ),
    KernelSpec(
        "qk_norm_rope_kv_write",
        "triton",
        compiled,
        PORTABLE,
        {**_HEADS, **device_floats("query_weight", "key_weight")},
        CUDA,
        launches=plan_qk_norm_rope_kv_write,
    ),
)
