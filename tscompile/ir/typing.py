"""Types of nodes: the schema's shape function applied to values of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from tscompile.ir.draft import DraftValue
from tscompile.ir.graph import Node
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, TensorType
from tsruntime.artifact.schema import Attribute, RankIndex


def infer_types(node: Node, values: Mapping[str, DraftValue]) -> tuple[TensorType, ...]:
    """Types of the node's outputs; ShapeError where its inputs do not fit."""
    types = tuple(None if i is None else values[i].type for i in node.inputs)
    return _infer(node.op, types, tuple(sorted(for_one_rank(node.attributes).items())))


@lru_cache(maxsize=4096)
def _infer(
    op: str, types: tuple[TensorType | None, ...], attributes: Sequence[tuple[str, AttributeValue]]
) -> tuple[TensorType, ...]:
    return tuple(OPS[op].schema.infer(types, dict(attributes)))


def for_one_rank(attributes: Mapping[str, Attribute]) -> dict[str, AttributeValue]:
    """The attributes as the rank at coordinate 0 has them: shapes do not depend on the rank."""
    return {
        name: 0 if isinstance(value, RankIndex) else value for name, value in attributes.items()
    }
