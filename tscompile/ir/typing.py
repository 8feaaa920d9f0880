"""Types of nodes: the schema's shape function applied to values of a program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

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
    types = tuple([None if v is None else v.type for v in inputs])
    attributes = tuple(sorted(for_one_rank(node.attributes).items()))
    if replicas == 1:
        return _infer(node.op, types, attributes)
    whole = tuple([v is not None and isinstance(v.storage, WeightStorage) for v in inputs])
    return _infer_global(node.op, types, whole, attributes, replicas)


Attributes: TypeAlias = tuple[tuple[str, AttributeValue], ...]


@lru_cache(maxsize=4096)
def _infer_global(
    op: str,
    types: tuple[TensorType | None, ...],
    whole: tuple[bool, ...],
    attributes: Attributes,
    replicas: int,
) -> tuple[TensorType, ...]:
    """The types for inputs over all replicas, but for those that every replica has `whole`."""
    of_one = tuple(
        type_ if type_ is None or alike else _rows(type_, type_.shape[0] // replicas)
        for type_, alike in zip(types, whole, strict=True)
    )
    found = _infer(op, of_one, attributes)
    return tuple(_rows(type_, type_.shape[0] * replicas) for type_ in found)


def _rows(type_: TensorType, count: int) -> TensorType:
    return TensorType(type_.dtype, (count, *type_.shape[1:]))


@lru_cache(maxsize=4096)
def _infer(
    op: str, types: tuple[TensorType | None, ...], attributes: Attributes
) -> tuple[TensorType, ...]:
    return tuple(OPS[op].schema.infer(types, dict(attributes)))


def for_one_rank(attributes: Mapping[str, Attribute]) -> dict[str, AttributeValue]:
    """The attributes as the rank at coordinate 0 has them: shapes do not depend on the rank."""
    return {
        name: 0 if isinstance(value, RankIndex) else value for name, value in attributes.items()
    }
