"""Schemas of dispatch and combine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.exchange import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import (
    floating,
    integer,
    integer_attribute,
    ranked,
    require,
    resized,
    same,
    same_dtype,
)


def _ranks(op: str, attributes: Mapping[str, AttributeValue]) -> int:
    ranks, step, held, first = (
        integer_attribute(attributes, name) for name in ("ranks", "step", "held", "first")
    )
    require(ranks >= 1, f"{op}: ranks is {ranks}, but there is at least one destination")
    require(first >= 0, f"{op}: first is {first}, but 0 is the least")
    require(
        1 <= held <= step,
        f"{op}: each destination holds {held} experts, but they begin {step} apart",
    )
    return ranks


def _infer_dispatch(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("dispatch.x", inputs[0], 2)
    ids = ranked("dispatch.ids", inputs[1], 2)
    weights = ranked("dispatch.weights", inputs[2], 2)
    same_dtype("dispatch", x=x, weights=weights)
    integer("dispatch.ids", ids)
    same("dispatch rows", ("x.shape[0]", x.shape[0]), ("ids.shape[0]", ids.shape[0]))
    same("dispatch choices", ("ids", list(ids.shape)), ("weights", list(weights.shape)))
    rows = _ranks("dispatch", attributes) * x.shape[0]
    return resized(x, 0, rows), resized(ids, 0, rows), resized(weights, 0, rows)


def _infer_combine(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    y = ranked("combine.y", inputs[0], 2)
    ids = ranked("combine.ids", inputs[1], 2)
    floating("combine.y", y)
    integer("combine.ids", ids)
    rows, ranks = ids.shape[0], _ranks("combine", attributes)
    same("combine rows", ("y.shape[0]", y.shape[0]), ("ranks * rows of ids", ranks * rows))
    return (resized(y, 0, rows),)


dispatch = define(reference.dispatch, _infer_dispatch, outputs=("rows", "ids", "weights"))
combine = define(reference.combine, _infer_combine)
