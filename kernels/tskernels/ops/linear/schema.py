"""Schema of the linear layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.linear import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import ranked, same, same_dtype


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


linear = define(reference.linear, _infer_linear)
