"""The memory plan for other sizes: what overlapped may overlap, what was apart stays apart."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor

from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, OpKind
from tsruntime.artifact.schema import ArenaStorage, Op, Value

_ALIGNMENT = 64


def replaced(
    before: Mapping[str, Value], after: Mapping[str, Value], ops: Sequence[Op]
) -> tuple[dict[str, Value], int]:
    """The values of `after` in an arena ordered as that of `before`, and its size in bytes."""
    views = [op for op in ops if OPS[op.op].schema.kind is OpKind.VIEW]
    aliases = {name for op in views for name in op.outputs}
    roots = [
        name
        for name, value in before.items()
        if isinstance(value.storage, ArenaStorage) and name not in aliases
    ]
    spans = {name: _span(before[name]) for name in roots}
    edges = sorted({edge for span in spans.values() for edge in span})
    widths = [0] * max(len(edges) - 1, 0)
    for name, (start, stop) in spans.items():
        needed, held = _bytes(after[name]), stop - start
        first, last = bisect_left(edges, start), bisect_left(edges, stop)
        for i in range(first, last):
            share = -(-needed * (edges[i + 1] - edges[i]) // held)
            widths[i] = max(widths[i], -(-share // _ALIGNMENT) * _ALIGNMENT)
    places = dict(zip(edges, accumulate(widths, initial=0), strict=True)) if edges else {}
    values = dict(after)
    for name in roots:
        storage = ArenaStorage(places[spans[name][0]], _contiguous(after[name].shape))
        values[name] = _at(after[name], storage)
    for op in views:
        _alias(op, values)
    return values, sum(widths)


def _span(value: Value) -> tuple[int, int]:
    assert isinstance(value.storage, ArenaStorage)
    start = value.storage.offset_bytes
    return start, start + max(_bytes(value), 1)


def _bytes(value: Value) -> int:
    return math.prod(value.shape) * value.dtype.itemsize


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _at(value: Value, storage: ArenaStorage) -> Value:
    return Value(value.name, value.dtype, value.shape, storage, value.placement)


def _alias(op: Op, values: dict[str, Value]) -> None:
    """Place a view's outputs as the reference's own alias lies."""
    source = values[op.inputs[0] or ""]
    assert isinstance(source.storage, ArenaStorage)
    given = cast("Mapping[str, AttributeValue]", op.attributes)
    schema = OPS[op.op].schema
    tensor = torch.empty_strided(source.shape, source.storage.strides, device="meta")
    result: Any = schema.reference(tensor, **resolve_attributes(schema, given))
    parts = cast("tuple[Tensor, ...]", result if isinstance(result, tuple) else (result,))
    for name, part in zip(op.outputs, parts, strict=True):
        start = source.storage.offset_bytes + int(part.storage_offset()) * source.dtype.itemsize
        values[name] = _at(values[name], ArenaStorage(start, tuple(part.stride())))
