"""Schema of the token embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.embedding import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import floating, integer, ranked


def _infer_embedding(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    ids = ranked("embedding.ids", inputs[0], 1)
    weight = ranked("embedding.weight", inputs[1], 2)
    integer("embedding.ids", ids)
    floating("embedding.weight", weight)
    return (TensorType(weight.dtype, (ids.shape[0], weight.shape[1])),)


embedding = define(reference.embedding, _infer_embedding)
