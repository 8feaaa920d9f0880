"""Schemas of the fused ops: their shapes are those of the ops that they stand for, in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.attention.schema import kv_write
from tskernels.ops.elementwise.schema import add, silu_mul
from tskernels.ops.fused import reference
from tskernels.ops.linear.schema import block_of, linear, scaled_linear
from tskernels.ops.norm.schema import rms_norm
from tskernels.ops.rotary.schema import rotary
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import require, resized

Types = Sequence[TensorType | None]
Attributes = Mapping[str, AttributeValue]


def _infer_add_rms_norm(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    (total,) = add.schema.infer(inputs[:2], {})
    (normed,) = rms_norm.schema.infer((total, inputs[2]), attributes)
    return (total, normed)


def _infer_linear_silu_mul(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    (both,) = linear.schema.infer(inputs, {})
    width, left = divmod(both.shape[1], 2)
    require(not left, f"linear_silu_mul: a packed weight of {both.shape[1]} rows is no pair")
    half = resized(both, 1, width)
    return silu_mul.schema.infer((half, half), {})


def _infer_scaled_linear_silu_mul(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    (both,) = scaled_linear.schema.infer(inputs, attributes)
    width, rows = both.shape[1] // 2, block_of(attributes)[0]
    whole = both.shape[1] == 2 * width and width % rows == 0
    require(whole, f"scaled_linear_silu_mul: {both.shape[1]} rows are no pair of blocks of {rows}")
    half = resized(both, 1, width)
    return silu_mul.schema.infer((half, half), {})


def _infer_rope_kv_write(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    query, key, value, table, cache, slots = inputs
    (turned,) = rotary.schema.infer((key, table), attributes)
    written = kv_write.schema.infer((turned, value, cache, slots), {})
    return (*rotary.schema.infer((query, table), attributes), *written)


def _infer_qk_norm_rope_kv_write(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    query, key, value, query_weight, key_weight, *rest = inputs
    (query,) = rms_norm.schema.infer((query, query_weight), attributes)
    (key,) = rms_norm.schema.infer((key, key_weight), attributes)
    return _infer_rope_kv_write((query, key, value, *rest), attributes)


add_rms_norm = define(reference.add_rms_norm, _infer_add_rms_norm, outputs=("total", "normed"))
linear_silu_mul = define(reference.linear_silu_mul, _infer_linear_silu_mul)
scaled_linear_silu_mul = define(reference.scaled_linear_silu_mul, _infer_scaled_linear_silu_mul)
rope_kv_write = define(
    reference.rope_kv_write, _infer_rope_kv_write, outputs=("query", "cache"), mutates={1: 4}
)
qk_norm_rope_kv_write = define(
    reference.qk_norm_rope_kv_write,
    _infer_qk_norm_rope_kv_write,
    outputs=("query", "cache"),
    mutates={1: 6},
)
