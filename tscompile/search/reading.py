"""A draft's program as the search sees it, with the compiler's rule table and its annotations.

Weights and caches are bound operands. Program inputs, and what derives from them alone, are whole
on every rank of a replica, so an op may take any slice of them, or gather them from all replicas:
that happens once a program and is not priced. A replicated weight may be masked to stand beside
partial sums.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tscompile.cost.model import FREE, Price
from tscompile.ir.boundaries import Boundaries
from tscompile.ir.draft import DraftProgram
from tscompile.ir.graph import Node, layer_of
from tscompile.ir.placement import (
    PARTIAL,
    REPLICATE,
    Placement,
    Placements,
    Shard,
    axes_with,
    by_replica,
)
from tscompile.ir.repeats import Repeat, Repeats, UnlikeLayersError
from tscompile.rules import RULES, OpTypes, Strategy
from tscompile.search.digits import Digits, Rows
from tscompile.search.exchange import ALL_TO_ALL, at_experts, exchange_price
from tscompile.search.fitting import Fitting, exchanges_of, types_of
from tscompile.search.layout import MeshAxes, View, tile_shape
from tscompile.search.layouts import program_laid_out
from tscompile.search.operands import Operands, Slot
from tscompile.search.program import Bound, Detail, Operation, Program
from tscompile.search.strategies import DEFERRED, AxisStrategy, Rule, Setting, Work, deferral
from tscompile.search.streams import IDENTITY
from tscompile.search.variants import cheapest
from tskernels.ops import OPS
from tskernels.schema import OpKind, TensorType
from tsruntime.artifact.schema import Mesh

OUTPUT = "output"
"""Kind of the operation that wants the program's output whole."""

_MASK = "mask"

Wanted: TypeAlias = tuple[Placement | None, ...]
"""Of inputs and then outputs the placements along one axis; None where it may be any."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Placements of a node's inputs (those of absent ones mean nothing) and outputs.

    Along the axes `exchanged` they hold behind an exchange of rows.
    """

    inputs: tuple[Placements, ...]
    outputs: tuple[Placements, ...]
    exchanged: tuple[str, ...] = ()


class Reading:
    """One draft program as the search sees it; `constants` are weights from the config alone.

    `repeats` are those of the draft.
    """

    def __init__(
        self,
        mesh: Mesh,
        draft: DraftProgram,
        constants: Collection[str] = frozenset(),
        repeats: Repeats = (),
    ) -> None:
        self.mesh, self.draft, self.repeats = mesh, draft, repeats
        self.axes: MeshAxes = mesh.axes
        self.operands = Operands(mesh, draft, constants)
        self.rows = Rows(mesh, draft)
        self.nodes: Mapping[str, Node] = {
            f"{position}.{node.op}": node
            for position, node in enumerate(draft.nodes)
            if self.operands.searched(node)
        }
        self._boundaries = Boundaries(
            replace(edge, value=self.operands.slot(edge.value).root)
            if edge.side == "output"
            else edge
            for edge in draft.edges
        )
        self._fitting = Fitting(mesh, draft, self.operands, self._boundaries)
        self._taken: dict[tuple[int, int, Wanted], Strategy] = {}
        self._details: dict[object, Detail] = {}
        self._wholes: dict[TensorType, View] = {}
        self._tiles: dict[tuple[str, Placements], TensorType] = {}

    def program(self) -> Program:
        """Operations in order, and last the one that wants the output whole."""
        operations = [self._operation(name, node) for name, node in self.nodes.items()]
        operations.append(Operation(OUTPUT, OUTPUT, (self.draft.output,), ()))
        cuts = self._cuts()
        repeats = tuple(_between(list(cuts), repeat) for repeat in self.repeats)
        return Program(
            self.axes,
            self._views(),
            tuple(operations),
            cuts=tuple(cuts.values()),
            repeats=repeats,
        )

    def laid_out(
        self, program: Program, placed: Mapping[str, Placements]
    ) -> tuple[Reading, Program]:
        """The reading and its `program` where the weights lie as `placed`.

        Operations that read none of those that moved are the same objects.
        """
        other = copy(self)
        other.draft = program_laid_out(self.draft, placed)
        other.operands = self.operands.laid_out(other.draft)
        moved = {n for n, v in other.draft.values.items() if v is not self.draft.values[n]}
        again = [node for node in self.draft.nodes if not moved.isdisjoint(node.inputs)]
        other._fitting = self._fitting.laid_out(other.draft, other.operands, moved, again)
        operations = tuple(
            op
            if op.kind == OUTPUT or moved.isdisjoint((node := self.nodes[op.name]).inputs)
            else other._operation(op.name, node)
            for op in program.operations
        )
        return other, replace(program, operations=operations)

    def rule(self, operation: Operation) -> Rule:
        """The op's rule from the compiler's table, with the annotations around it."""
        if operation.kind == OUTPUT:
            return Rule(OUTPUT, self._output_along, lambda setting: Work(0, launches=0))
        node = self.nodes[operation.name]

        return Rule(operation.kind, partial(self._strategies, node), self._work(node, operation))

    def _strategies(self, node: Node, operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
        index = [a.name for a in self.axes].index(axis)
        bound = tuple(b.placements[index] for b in operation.bound)
        slots = self.operands.slots(node)
        every = self._fitting.every(node, index)
        found = (self._along(node, slots, strategy, index, bound) for strategy in every)
        return tuple(dict.fromkeys(one for one in found if one is not None))

    @property
    def output_placements(self) -> Placements:
        """The logits: each replica's own rows, whole on all of its ranks."""
        return by_replica(self.mesh)

    def _output_along(self, operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
        index = [a.name for a in self.axes].index(axis)
        return (AxisStrategy((self.output_placements[index],), ()),)

    def taken(self, node: Node, placed: Mapping[str, Placements]) -> Taken:
        """The placements of a node's operands under the strategies that place roots as `placed`."""
        found = [self._strategy(node, placed, axis) for axis in range(len(self.axes))]
        return Taken(
            tuple(tuple(s.inputs[i] for s in found) for i in range(len(node.inputs))),
            tuple(tuple(s.outputs[o] for s in found) for o in range(len(node.outputs))),
            tuple(
                axis.name
                for axis, s in zip(self.axes, found, strict=True)
                if s in exchanges_of(node)
            ),
        )

    def _strategy(self, node: Node, placed: Mapping[str, Placements], axis: int) -> Strategy:
        """The first of the table that places what is placed alike."""
        names = (*node.inputs, *node.outputs)
        roots = ("" if name is None else self.operands.slot(name).root for name in names)
        wanted = tuple(placed[root][axis] if root in placed else None for root in roots)
        key = (self._fitting.kind(node), axis, wanted)
        if key not in self._taken:
            self._taken[key] = self._placing(node, wanted, axis)
        return self._taken[key]

    def _placing(self, node: Node, wanted: Wanted, axis: int) -> Strategy:
        """The first strategy that places inputs and outputs as `wanted`, where that says so."""
        for strategy in self._fitting.every(node, axis):
            given = (*strategy.inputs[: len(node.inputs)], *strategy.outputs)
            pairs = zip(wanted, given, strict=True)
            if all(want is None or want == placement for want, placement in pairs):
                return strategy
        raise AssertionError(f"{node.op} has no strategy for {wanted}")

    def computed(self, node: Node) -> list[str]:
        """A node's outputs that are not bound."""
        return [name for name in node.outputs if not self.draft.values[name].is_bound]

    def _along(
        self,
        node: Node,
        slots: Sequence[Slot | None],
        strategy: Strategy,
        axis: int,
        bound: tuple[Placement, ...],
    ) -> AxisStrategy | None:
        inputs: dict[str, Placement] = {}
        masked = False
        for slot, wanted in zip(slots, strategy.inputs, strict=False):
            if slot is None:
                continue
            if slot.kind == "value" and inputs.setdefault(slot.root, wanted) != wanted:
                return None
            masked |= slot.kind == "weight" and self._masks(slot, wanted, axis)
        outputs = tuple(
            given
            for name, given in zip(node.outputs, strategy.outputs, strict=True)
            if not self.draft.values[name].is_bound
        )
        tag = _MASK if masked else ""
        if node.op == "add" and PARTIAL in outputs:
            tag = DEFERRED
        if strategy in exchanges_of(node):
            tag = ALL_TO_ALL
        return AxisStrategy(tuple(inputs.values()), outputs, bound, tag)

    def _masks(self, slot: Slot, wanted: Placement, axis: int) -> bool:
        return wanted == PARTIAL and slot.value.placements[axis] == REPLICATE

    def _operation(self, name: str, node: Node) -> Operation:
        present = self.operands.slots(node)
        slots = [slot for slot in present if slot is not None]
        around = self._boundaries.around([*[s.name for s in slots], *node.outputs], node.module)
        edges = tuple([(edge.side, edge.required) for edge in around])
        alike = self._fitting.kind(node), edges
        if alike not in self._details:
            shape = tuple(None if s is None else (s.kind, s.value.type) for s in present)
            self._details[alike] = Detail(shape, tuple(sorted(node.attributes.items())), edges)
        return Operation(
            name,
            node.op,
            tuple(dict.fromkeys([s.root for s in slots if s.kind == "value"])),
            tuple(self.computed(node)),
            tuple([self._bound(s) for s in slots if s.kind in ("weight", "cache")]),
            detail=self._details[alike],
        )

    def _bound(self, slot: Slot) -> Bound:
        type_ = slot.value.type
        if type_ not in self._wholes:
            digits = ((),) * len(type_.shape)
            self._wholes[type_] = View(type_.shape, digits, type_.dtype.itemsize)
        return Bound(slot.name, self._wholes[type_], slot.value.placements)

    def tile(self, name: str, placements: Placements) -> TensorType:
        """What one rank holds of an operand that lies so."""
        key = name, placements
        if key not in self._tiles:
            type_ = self.operands.slot(name).value.type
            shape = tile_shape(self.axes, type_.shape, placements)
            self._tiles[key] = TensorType(type_.dtype, shape)
        return self._tiles[key]

    def _work(self, node: Node, operation: Operation) -> Callable[[Setting], Work]:
        """By the table's arithmetic on local types; a masked weight is one more copy."""
        if node.op == IDENTITY:
            return lambda setting: Work(0, launches=0)
        names = (*operation.inputs, *operation.outputs, *(b.name for b in operation.bound))
        position = {name: number for number, name in enumerate(names)}
        slots = [
            slot and (slot.name, position.get(slot.root), slot.value.placements)
            for slot in (*self.operands.slots(node), *map(self.operands.slot, node.outputs))
        ]
        whole = types_of(node, self.draft.values).inputs
        launches = 0 if OPS[node.op].schema.kind is OpKind.VIEW else 1
        rule, count = RULES[node.op], len(node.inputs)

        def work(setting: Setting) -> Work:
            placed = setting.placements
            local = [s and self.tile(s[0], s[2] if s[1] is None else placed[s[1]]) for s in slots]
            outputs = tuple(type_ for type_ in local[count:] if type_ is not None)
            types = OpTypes(tuple(local[:count]), outputs, node.attributes, whole)
            extra = setting.costs.kernel(0) if _MASK in setting.tags else FREE
            if DEFERRED in setting.tags:
                extra = deferral(setting.costs)
            if away := setting.tagged(ALL_TO_ALL):
                extra = self._exchange(node, setting, away, types)
                types = at_experts(types, self.mesh.size(away))
            way = cheapest(setting.costs, rule, types)
            return Work(rule.traffic(way), rule.flops(way), launches, extra)

        return work

    def _exchange(
        self, node: Node, setting: Setting, away: tuple[str, ...], types: OpTypes
    ) -> Price:
        gate = next(b for b in setting.operation.bound if b.name == node.inputs[3])
        cut = axes_with(self.mesh, gate.placements, Shard(0))
        return exchange_price(setting.costs, self.mesh, cut, away, types)

    def _cuts(self) -> dict[int, int]:
        """Before the first add of each layer: behind attention, where little is left open."""
        cuts: dict[int, int] = {}
        for position, node in enumerate(self.nodes.values()):
            layer = layer_of(node.module)
            if layer is not None and node.op == "add":
                cuts.setdefault(layer, position)
        return cuts

    def _views(self) -> dict[str, View]:
        """Of every value that the search places; cut as what views it can be cut, too."""
        digits = Digits(self.mesh, self.draft, self._fitting.cuts)
        extents = {
            name: list(self.draft.values[name].type.shape)
            for node in self.nodes.values()
            for name in self.computed(node)
        }
        for name in self.operands.views:
            whole = extents[self.operands.slot(name).root]
            for dim, extent in enumerate(self.draft.values[name].type.shape[: len(whole)]):
                whole[dim] = min(whole[dim], extent)
        views: dict[object, View] = {}
        found: dict[str, View] = {}
        for name, sizes in extents.items():
            type_ = self.draft.values[name].type
            key = type_, tuple(sizes), digits.reaching(name, len(sizes))
            if key not in views:
                views[key] = self.rows.view(type_, digits.inner(name, sizes))
            found[name] = views[key]
        return found


def _between(layers: Sequence[int], repeat: Repeat) -> Repeat:
    """The repeat of what begins at the cuts of repeated layers."""
    if layers[repeat.first : repeat.last] != list(range(repeat.first, repeat.last)):
        raise UnlikeLayersError
    return replace(repeat, first=repeat.first + 1)
