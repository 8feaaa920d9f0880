"""Schemas of the view ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tskernels.op import define
from tskernels.ops.indexing.schema import infer_range
from tskernels.ops.views import reference
from tskernels.schema import AttributeValue, OpKind, TensorType
from tskernels.shapes import integer_attribute, ranked, require, resized, same


def _infer_split(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("split.x", inputs[0], 1, 2, 3)
    sizes = cast("tuple[int, ...]", attributes["sizes"])
    require(all(size >= 0 for size in sizes), f"split: sizes are {sizes}, none may be negative")
    same("split", ("the sum of sizes", sum(sizes)), ("x.shape[-1]", x.shape[-1]))
    return tuple(resized(x, len(x.shape) - 1, size) for size in sizes)


def _infer_unflatten(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("unflatten.x", inputs[0], 2)
    size, width = integer_attribute(attributes, "size"), x.shape[1]
    require(size > 0 and width % size == 0, f"unflatten: {width} columns do not divide by {size}")
    return (TensorType(x.dtype, (x.shape[0], width // size, size)),)


def _infer_flatten(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("flatten.x", inputs[0], 3)
    return (TensorType(x.dtype, (x.shape[0], x.shape[1] * x.shape[2])),)


def _infer_narrow(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    return infer_range("narrow", inputs[0], attributes)


split = define(reference.split, _infer_split, outputs=("parts",), kind=OpKind.VIEW)
unflatten = define(reference.unflatten, _infer_unflatten, kind=OpKind.VIEW)
flatten = define(reference.flatten, _infer_flatten, kind=OpKind.VIEW)
narrow = define(reference.narrow, _infer_narrow, kind=OpKind.VIEW)
