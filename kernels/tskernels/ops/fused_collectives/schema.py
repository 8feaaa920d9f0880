"""Schemas of the fused collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.fused_collectives import reference
from tskernels.ops.norm.schema import rms_norm
from tskernels.schema import AttributeValue, OpKind, TensorType
from tskernels.shapes import integer_attribute, ranked, require, resized, same, same_dtype

Types = Sequence[TensorType | None]
Attributes = Mapping[str, AttributeValue]


def _summed(op: str, inputs: Types, attributes: Attributes, *, scatter: bool) -> TensorType:
    """What one rank holds of the sum, which its residual must fit."""
    x, size = ranked(f"{op}.x", inputs[0], 2), integer_attribute(attributes, "size")
    require(size >= 1, f"{op}: size is {size}, but a group has at least one rank")
    if scatter:
        rows, left = divmod(x.shape[0], size)
        require(not left, f"{op}: {x.shape[0]} rows do not divide by {size}")
        x = resized(x, 0, rows)
    if inputs[2] is not None:
        residual = ranked(f"{op}.residual", inputs[2], 2)
        same_dtype(op, x=x, residual=residual)
        same(f"{op} shapes", ("the sum", list(x.shape)), ("residual", list(residual.shape)))
    return x


def _normed(total: TensorType, inputs: Types, attributes: Attributes) -> TensorType:
    (normed,) = rms_norm.schema.infer((total, inputs[1]), attributes)
    return normed


def _infer_all_reduce(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    total = _summed("all_reduce_add_rms_norm", inputs, attributes, scatter=False)
    return (total, _normed(total, inputs, attributes))


def _infer_reduce_scatter(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    total = _summed("reduce_scatter_add_rms_norm", inputs, attributes, scatter=True)
    return (total, _normed(total, inputs, attributes))


def _infer_and_all_gather(inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    total = _summed("reduce_scatter_add_rms_norm_all_gather", inputs, attributes, scatter=True)
    normed = _normed(total, inputs, attributes)
    rows = total.shape[0] * integer_attribute(attributes, "size")
    gathered = resized(normed, 0, rows)
    return (gathered if attributes["both"] else total, gathered)


_OUTPUTS = ("total", "normed")

all_reduce_add_rms_norm = define(
    reference.all_reduce_add_rms_norm, _infer_all_reduce, outputs=_OUTPUTS, kind=OpKind.COLLECTIVE
)
reduce_scatter_add_rms_norm = define(
    reference.reduce_scatter_add_rms_norm,
    _infer_reduce_scatter,
    outputs=_OUTPUTS,
    kind=OpKind.COLLECTIVE,
)
reduce_scatter_add_rms_norm_all_gather = define(
    reference.reduce_scatter_add_rms_norm_all_gather,
    _infer_and_all_gather,
    outputs=_OUTPUTS,
    kind=OpKind.COLLECTIVE,
)
