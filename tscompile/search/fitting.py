"""The strategies of a draft's nodes that bound operands and annotations leave along each axis."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TypeAlias

from tscompile.ir.boundaries import Boundaries
from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import Node
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tscompile.rules import RULES, OpTypes, Strategy
from tscompile.search.operands import Kind, Operands, Slot
from tscompile.search.streams import IDENTITY
from tsruntime.artifact.schema import Mesh

Required: TypeAlias = tuple[Placement | None, ...]
"""A placement for each axis, None where any will do."""

_IDENTITIES = tuple(Strategy((p,), (p,)) for p in (REPLICATE, PARTIAL, Shard(0), Shard(1)))


@dataclass(frozen=True, slots=True)
class Entry:
    """An input: where it lies if it is bound, what its boundary requires if it is a value."""

    kind: Kind
    placements: Required

    def allows(self, wanted: Placement, axis: int) -> bool:
        """Whether it can be had as `wanted`: what is free in any slice, a weight masked."""
        if self.kind == "free":
            return wanted == REPLICATE or isinstance(wanted, Shard)
        actual = self.placements[axis]
        if actual == wanted:
            return True
        if self.kind == "value":
            return actual is None
        return self.kind == "weight" and (actual, wanted) == (REPLICATE, PARTIAL)


@dataclass(frozen=True, slots=True)
class Constraints:
    """One entry an input (None for an absent one), and for each output all that it must be."""

    inputs: tuple[Entry | None, ...]
    outputs: tuple[tuple[Required, ...], ...]

    def fit(self, strategy: Strategy, axis: int) -> bool:
        """Whether a strategy along an axis keeps to them."""
        for entry, wanted in zip(self.inputs, strategy.inputs, strict=False):
            if entry is not None and not entry.allows(wanted, axis):
                return False
        for every, given in zip(self.outputs, strategy.outputs, strict=True):
            for required in every:
                if required[axis] not in (None, given):
                    return False
        return True


Cuts: TypeAlias = tuple[tuple[int, int], ...]
"""Dims of operands, which are counted inputs first, then outputs."""


class Fitting:
    """What fits each node of a program, worked out once for nodes that are alike."""

    def __init__(
        self, mesh: Mesh, draft: DraftProgram, operands: Operands, boundaries: Boundaries
    ) -> None:
        self._mesh, self._draft = mesh, draft
        self._operands, self._boundaries = operands, boundaries
        self._numbers: dict[object, int] = {}
        self._number_of: dict[str, int] = {}
        self._kind_of: dict[int, int] = {}
        self._found: dict[tuple[int, int], tuple[Strategy, ...]] = {}
        self._cut: dict[tuple[int, int], tuple[Cuts, ...]] = {}

    def laid_out(
        self, draft: DraftProgram, operands: Operands, moved: Collection[str], again: Iterable[Node]
    ) -> Fitting:
        """The same where the values `moved` of `draft` lie otherwise; `again` are their readers.

        Kinds keep their numbers, and what is known of them.
        """
        other = copy(self)
        other._draft, other._operands = draft, operands
        other._number_of = {n: v for n, v in self._number_of.items() if n not in moved}
        other._kind_of = dict(self._kind_of)
        for node in again:
            other._kind_of.pop(id(node), None)
        return other

    def every(self, node: Node, axis: int) -> tuple[Strategy, ...]:
        """The table's strategies, and behind them those that an exchange allows."""
        key = self.kind(node), axis
        if key not in self._found:
            constraints = self._constraints(node)
            strategies = (*self._strategies(node, axis), *exchanges_of(node))
            self._found[key] = tuple(s for s in strategies if constraints.fit(s, axis))
        return self._found[key]

    def cuts(self, node: Node, axis: int) -> tuple[Cuts, ...]:
        """The inner dims that each of the table's strategies cuts, where it cuts any."""
        key = self.kind(node), axis
        if key not in self._cut:
            exchanges = exchanges_of(node)
            local = [_cuts(node, s) for s in self.every(node, axis) if s not in exchanges]
            self._cut[key] = tuple(cuts for cuts in local if cuts)
        return self._cut[key]

    def _strategies(self, node: Node, axis: int) -> tuple[Strategy, ...]:
        if node.op == IDENTITY:
            return _IDENTITIES
        types = types_of(node, self._draft.values)
        return RULES[node.op].along(types, self._mesh, self._mesh.axes[axis].name)

    def kind(self, node: Node) -> int:
        """A number that nodes of the program share which are alike."""
        if id(node) not in self._kind_of:
            key = (
                node.op,
                tuple(sorted(node.attributes.items())) if node.attributes else (),
                tuple([None if n is None else self._input(n, node.module) for n in node.inputs]),
                tuple([self._value(name) for name in node.outputs]),
            )
            self._kind_of[id(node)] = self._number(key)
        return self._kind_of[id(node)]

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _input(self, name: str, module: str) -> int:
        """A number that inputs share of which the same is known and wanted."""
        if not self._boundaries.crossed(name):
            return self._value(name)
        entry = self._entry(self._operands.slot(name), module)
        return self._number((self._value(name), entry))

    def _value(self, name: str) -> int:
        """A number that values share of which the same is known, and wanted where they are made."""
        if name not in self._number_of:
            slot = self._operands.slot(name)
            left = () if slot.kind in ("weight", "cache") else self._left(name)
            key = (slot.kind, slot.value.type, slot.value.placements, left)
            self._number_of[name] = self._number(key)
        return self._number_of[name]

    def _constraints(self, node: Node) -> Constraints:
        slots = self._operands.slots(node)
        return Constraints(
            tuple(None if slot is None else self._entry(slot, node.module) for slot in slots),
            tuple(self._left(name) for name in node.outputs),
        )

    def _entry(self, slot: Slot, module: str) -> Entry:
        if slot.kind != "value":
            return Entry(slot.kind, slot.value.placements)
        axes = range(len(self._mesh.axes))
        edges = [self._boundaries.entering(slot.name, module, axis) for axis in axes]
        required = (None if edge is None else edge.required[i] for i, edge in enumerate(edges))
        return Entry(slot.kind, tuple(required))

    def _left(self, name: str) -> tuple[Required, ...]:
        value = self._draft.values[name]
        if value.is_bound:
            return (value.placements,)
        return tuple(edge.required for edge in self._boundaries.leaving(name))


def _cuts(node: Node, strategy: Strategy) -> Cuts:
    given = (*strategy.inputs[: len(node.inputs)], *strategy.outputs)
    return tuple((i, p.dim) for i, p in enumerate(given) if isinstance(p, Shard) and p.dim > 0)


def exchanges_of(node: Node) -> tuple[Strategy, ...]:
    """The strategies that an exchange of rows allows."""
    return () if node.op == IDENTITY else RULES[node.op].exchanges


def types_of(node: Node, values: Mapping[str, DraftValue]) -> OpTypes:
    """Global types and attributes of a node."""
    return OpTypes(
        tuple(None if name is None else values[name].type for name in node.inputs),
        tuple(values[name].type for name in node.outputs),
        node.attributes,
    )
