"""Schemas of the ops that select rows, slices and coordinates, or put blocks in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tskernels.op import define
from tskernels.ops.indexing import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import integer, integer_attribute, normal_dim, ranked, require, resized


def _infer_select_rows(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("select_rows.x", inputs[0], 2)
    rows = ranked("select_rows.rows", inputs[1], 1)
    integer("select_rows.rows", rows)
    return (TensorType(x.dtype, (rows.shape[0], x.shape[1])),)


def _infer_mask(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    coordinate = integer_attribute(attributes, "coordinate")
    require(coordinate >= 0, f"mask: coordinate is {coordinate}, but 0 is the least")
    return (ranked("mask.x", inputs[0], 1, 2, 3),)


def infer_range(
    op: str, value: TensorType | None, attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    """Type of x[..., start : start + size, ...] along `dim`, which must lie inside x."""
    x = ranked(f"{op}.x", value, 1, 2, 3)
    start, size = (integer_attribute(attributes, name) for name in ("start", "size"))
    dim = normal_dim(op, integer_attribute(attributes, "dim"), x)
    require(
        start >= 0 and size >= 0 and start + size <= x.shape[dim],
        f"{op}: entries {start} to {start + size} lie outside dim {dim} of size {x.shape[dim]}",
    )
    return (resized(x, dim, size),)


def _infer_slice(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    return infer_range("slice", inputs[0], attributes)


def _infer_permute(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("permute.x", inputs[0], 1, 2, 3)
    dim = normal_dim("permute", integer_attribute(attributes, "dim"), x)
    sizes, order = (_integers(attributes, name) for name in ("sizes", "order"))
    require(
        prod(sizes) == x.shape[dim],
        f"permute: the sizes {list(sizes)} do not make dim {dim} of size {x.shape[dim]}",
    )
    require(
        sorted(order) == list(range(len(sizes))),
        f"permute: {list(order)} is no order of {len(sizes)} blocks",
    )
    return (x,)


def _integers(attributes: Mapping[str, AttributeValue], name: str) -> tuple[int, ...]:
    value = attributes[name]
    assert isinstance(value, tuple)
    return tuple(entry for entry in value if isinstance(entry, int))


select_rows = define(reference.select_rows, _infer_select_rows)
mask = define(reference.mask, _infer_mask)
slice_ = define(reference.slice_, _infer_slice)
permute = define(reference.permute, _infer_permute)
