"""Schemas of linear layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.linear import reference
from tskernels.schema import AttributeValue, DType, TensorType
from tskernels.shapes import ranked, require, same, same_dtype


def _infer_linear(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("linear.x", inputs[0], 2)
    weight = ranked("linear.weight", inputs[1], 2)
    same_dtype("linear", x=x, weight=weight)
    same("linear columns", ("x.shape[1]", x.shape[1]), ("weight.shape[1]", weight.shape[1]))
    if inputs[2] is not None:
        bias = ranked("linear.bias", inputs[2], 1)
        same_dtype("linear", x=x, bias=bias)
        same("linear rows", ("weight.shape[0]", weight.shape[0]), ("len(bias)", bias.shape[0]))
    return (TensorType(x.dtype, (x.shape[0], weight.shape[0])),)


def block_of(attributes: Mapping[str, AttributeValue]) -> tuple[int, int]:
    """Rows and columns that share a scale; ShapeError unless `block` is two sizes."""
    match attributes["block"]:
        case (int(rows), int(columns)) if rows > 0 and columns > 0:
            return rows, columns
        case other:
            require(False, f"scaled_linear: block is {other}, not two sizes")
            raise AssertionError


def _infer_scaled_linear(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("scaled_linear.x", inputs[0], 2)
    weight = ranked("scaled_linear.weight", inputs[1], 2)
    scale = ranked("scaled_linear.scale", inputs[2], 2)
    held = x.dtype if weight.dtype is not DType.FLOAT8_E4M3 else weight.dtype
    same("scaled_linear", ("weight.dtype", weight.dtype), ("what it takes", held))
    same("scaled_linear", ("scale.dtype", scale.dtype), ("what goes with x", x.dtype.wide))
    blocks = tuple(-(-n // b) for n, b in zip(weight.shape, block_of(attributes), strict=True))
    same("scaled_linear", ("scale.shape", scale.shape), ("the weight's blocks", blocks))
    types = (x, TensorType(x.dtype, weight.shape), inputs[3])
    return _infer_linear(types, {})


linear = define(reference.linear, _infer_linear)
scaled_linear = define(reference.scaled_linear, _infer_scaled_linear)
