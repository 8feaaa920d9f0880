"""The abstract program that the search runs over: values, bound operands, operations in order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from tscompile.ir.placement import Placements
from tscompile.ir.repeats import Repeats
from tscompile.search.layout import MeshAxes, View


@dataclass(frozen=True, slots=True)
class Bound:
    """An operand whose placement is given: a weight, or a cache by what one step reads of it."""

    name: str
    view: View
    placements: Placements


class Detail:
    """What an op's strategies depend on beside its values' views; hashed once, for it is large."""

    def __init__(self, *parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Detail) and self._parts == other._parts


@dataclass(frozen=True, slots=True)
class Operation:
    """One op: `inputs` and `outputs` are values; what is free to lie anywhere is left out.

    `attributes` are whole numbers that its rule reads (`top_k`, `context`); `detail` is whatever
    else its strategies depend on, so that ops are told apart by it.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bound: tuple[Bound, ...] = ()
    attributes: tuple[tuple[str, int], ...] = ()
    detail: Hashable = None

    def attribute(self, name: str) -> int:
        """An attribute's value; KeyError where there is none."""
        return dict(self.attributes)[name]


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in order over values of global shape.

    `given` values exist at the start. `cuts` are the positions at which a layer begins: what lies
    between two cuts is searched once for all layers that are alike. Some of what lies between cuts
    is to be run several times over: `repeats` counts from what lies before the first cut.
    """

    axes: MeshAxes
    values: Mapping[str, View]
    operations: tuple[Operation, ...]
    given: Mapping[str, Placements] = field(default_factory=dict[str, Placements])
    cuts: tuple[int, ...] = ()
    repeats: Repeats = ()

    def readers(self) -> dict[str, list[int]]:
        """For each value the positions of the operations that read it."""
        found: dict[str, list[int]] = {name: [] for name in self.values}
        for position, operation in enumerate(self.operations):
            for name in operation.inputs:
                found[name].append(position)
        return found
