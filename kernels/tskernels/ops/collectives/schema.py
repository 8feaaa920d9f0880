"""Schemas of the collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.collectives import reference
from tskernels.schema import AttributeValue, OpKind, TensorType
from tskernels.shapes import integer_attribute, normal_dim, ranked, require, resized

REDUCTIONS = ("sum", "max")


def _ranks(op: str, attributes: Mapping[str, AttributeValue]) -> int:
    size = integer_attribute(attributes, "size")
    require(size >= 1, f"{op}: size is {size}, but a group has at least one rank")
    reduce = attributes.get("reduce", "sum")
    require(reduce in REDUCTIONS, f"{op}: reduce is {reduce!r}, but must be one of {REDUCTIONS}")
    return size


def _part(op: str, x: TensorType, dim: int, size: int) -> TensorType:
    extent = x.shape[dim]
    require(extent % size == 0, f"{op}: dim {dim} of size {extent} does not divide by {size}")
    return resized(x, dim, extent // size)


def _infer_all_reduce(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    _ranks("all_reduce", attributes)
    return (ranked("all_reduce.x", inputs[0], 1, 2, 3),)


def _infer_all_gather(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("all_gather.x", inputs[0], 1, 2, 3)
    dim = normal_dim("all_gather", integer_attribute(attributes, "dim"), x)
    return (resized(x, dim, x.shape[dim] * _ranks("all_gather", attributes)),)


def _infer_reduce_scatter(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("reduce_scatter.x", inputs[0], 1, 2, 3)
    dim = normal_dim("reduce_scatter", integer_attribute(attributes, "dim"), x)
    return (_part("reduce_scatter", x, dim, _ranks("reduce_scatter", attributes)),)


def _infer_all_to_all(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("all_to_all.x", inputs[0], 1, 2, 3)
    size = _ranks("all_to_all", attributes)
    split = normal_dim("all_to_all", integer_attribute(attributes, "split_dim"), x)
    concat = normal_dim("all_to_all", integer_attribute(attributes, "concat_dim"), x)
    part = _part("all_to_all", x, split, size)
    return (resized(part, concat, part.shape[concat] * size),)


all_reduce = define(reference.all_reduce, _infer_all_reduce, kind=OpKind.COLLECTIVE)
all_gather = define(reference.all_gather, _infer_all_gather, kind=OpKind.COLLECTIVE)
reduce_scatter = define(reference.reduce_scatter, _infer_reduce_scatter, kind=OpKind.COLLECTIVE)
all_to_all = define(reference.all_to_all, _infer_all_to_all, kind=OpKind.COLLECTIVE)
