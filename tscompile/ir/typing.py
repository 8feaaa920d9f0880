"""Types of nodes: the schema's shape function applied to values of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from tscompile.ir.draft import DraftValue
from tscompile.ir.graph import Node
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, TensorType
from tsruntime.artifact.schema import Attribute, RankIndex, WeightStorage


def infer_types(
    node: Node, values: Mapping[str, DraftValue], replicas: int = 1
) -> tuple[TensorType, ...]:
    """Types of the node's outputs; ShapeError where its inputs do not fit.

    Where dim 0 of everything but weights runs over several attention replicas, the types are those
    of one replica, and as many rows again for each.
    """
    inputs = [None if i is None else values[i] for i in node.inputs]
    types = tuple(None if v is None else _of_one(v, replicas) for v in inputs)
    found = _infer(node.op, types, tuple(sorted(for_one_rank(node.attributes).items())))
    return tuple(_scaled(type_, replicas) for type_ in found)


def _of_one(value: DraftValue, replicas: int) -> TensorType:
    if replicas == 1 or isinstance(value.storage, WeightStorage):
        return value.type
    rows, *others = value.type.shape
    return replace(value.type, shape=(rows // replicas, *others))


def _scaled(type_: TensorType, replicas: int) -> TensorType:
    if replicas == 1:
        return type_
    rows, *others = type_.shape
    return replace(type_, shape=(rows * replicas, *others))


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
