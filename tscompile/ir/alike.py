"""Nodes and values of programs that are alike for whoever looks at no more than one of them.

The layers of a model, the programs of its buckets and the drafts after each pass have much in
common: what held of one node holds of all that differ from it in names alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import Node
from tsruntime.artifact.schema import WeightStorage


@dataclass(frozen=True, slots=True)
class Applied:
    """A node with the values that it reads, None for an absent one, and those that it gives."""

    node: Node
    inputs: tuple[DraftValue | None, ...]
    outputs: tuple[DraftValue, ...]


class Numbers:
    """Numbers for values and attributes: the same for equal ones.

    Most come again as the same objects, after the next pass or in a copy of a layer: so they are
    kept alive, and told by their identity. Of others the contents are compared.
    """

    def __init__(self) -> None:
        self._same: dict[object, int] = {}
        self._equal: dict[Hashable, int] = {}
        self._kept: list[object] = []

    def value(self, value: DraftValue) -> int:
        """By type and placements, weights apart."""
        number = self._same.get(id(value))
        if number is None:
            weight = type(value.storage) is WeightStorage
            key = (id(value.type), id(value.placements), weight)
            number = self._same.get(key)
            if number is None:
                number = self._new(key, value, (value.type, value.placements, weight))
            self._kept.append(value)
            self._same[id(value)] = number
        return number

    def attributes(self, node: Node) -> int:
        """By names, types and values."""
        key = id(node.attributes)
        number = self._same.get(key)
        if number is None:
            equal = tuple((name, type(value), value) for name, value in node.attributes.items())
            number = self._new(key, node.attributes, equal)
        return number

    def _new(self, key: object, kept: object, equal: Hashable) -> int:
        self._kept.append(kept)
        self._same[key] = self._equal.setdefault(equal, len(self._equal))
        return self._same[key]


class Distinct:
    """The nodes and values of a program: of those that are alike the first, by what they share."""

    def __init__(self, program: DraftProgram, numbers: Numbers) -> None:
        self._program, self._numbers = program, numbers

    @cached_property
    def _number(self) -> Mapping[str | None, int]:
        number = self._numbers.value
        return {None: -1, **{name: number(value) for name, value in self._program.values.items()}}

    @cached_property
    def values(self) -> Mapping[Hashable, DraftValue]:
        """By number."""
        found: dict[Hashable, DraftValue] = {}
        for name, value in self._program.values.items():
            found.setdefault(self._number[name], value)
        return found

    @cached_property
    def nodes(self) -> Mapping[Hashable, Applied]:
        """By op, pin, attributes, values, and the fused op that a node is part of."""
        number, attributes = self._number.__getitem__, self._numbers.attributes
        found: dict[Hashable, Node] = {}
        for node in self._program.nodes:
            key = (
                node.op,
                node.pin,
                node.fused and node.fused.partition(":")[0],
                attributes(node),
                *map(number, node.inputs),
                -2,
                *map(number, node.outputs),
            )
            found.setdefault(key, node)
        return {key: applied(node, self._program.values) for key, node in found.items()}


def applied(node: Node, values: Mapping[str, DraftValue]) -> Applied:
    """A node with its values."""
    return Applied(
        node,
        tuple(None if name is None else values[name] for name in node.inputs),
        tuple(values[name] for name in node.outputs),
    )
