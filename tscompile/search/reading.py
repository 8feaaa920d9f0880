"""A draft's program as the search sees it, with the compiler's rule table and its annotations.

Weights and caches are bound operands. Program inputs are whole on every rank of a replica, so an op
may take any slice of them, or gather them from all replicas: that happens once a program and is not
priced. A replicated weight may be masked to stand beside partial sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tscompile.cost.model import FREE
from tscompile.ir.draft import DraftProgram, DraftValue, Edge
from tscompile.ir.graph import Node, layer_of
from tscompile.ir.mesh import ATTN_DP
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Placements, Shard, by_replica
from tscompile.rules import RULES, OpTypes, Strategy
from tscompile.search.layout import MeshAxes, View, dividing_axes, make_view, token_axes
from tscompile.search.program import Bound, Operation, Program
from tscompile.search.rules import DEFERRED, deferral
from tscompile.search.strategies import AxisStrategy, Rule, Setting, Work
from tscompile.search.variants import cheapest
from tskernels.ops import OPS
from tskernels.schema import OpKind, TensorType
from tsruntime.artifact.schema import CacheStorage, InputStorage, Mesh, WeightStorage

OUTPUT = "output"
"""Kind of the operation that wants the program's output whole."""

_MASK = "mask"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an input of a node comes from: `free`, `weight`, `cache`, or a computed `value`."""

    name: str
    kind: str
    value: DraftValue


class Reading:
    """One draft program as the search sees it."""

    def __init__(self, mesh: Mesh, draft: DraftProgram) -> None:
        self.mesh, self.draft = mesh, draft
        self.axes: MeshAxes = mesh.axes
        self.replicas = mesh.size(mesh.groups[ATTN_DP])
        self.nodes: Mapping[str, Node] = {
            f"{position}.{node.op}": node for position, node in enumerate(draft.nodes)
        }
        self._edges: dict[str, list[Edge]] = {}
        for edge in draft.edges:
            self._edges.setdefault(edge.value, []).append(edge)
        self._slots = {name: self._slot(name) for name in draft.values}

    def program(self) -> Program:
        """Operations in order, and last the one that wants the output whole."""
        views = self._views()
        operations = [self._operation(name, node) for name, node in self.nodes.items()]
        operations.append(Operation(OUTPUT, OUTPUT, (self.draft.output,), ()))
        return Program(self.axes, views, tuple(operations), cuts=self._cuts())

    def rule(self, operation: Operation) -> Rule:
        """The op's rule from the compiler's table, with the annotations around it."""
        if operation.kind == OUTPUT:
            return Rule(OUTPUT, self._output_along, lambda setting: Work(0, launches=0))
        node = self.nodes[operation.name]

        def along(_: Operation, axis: str) -> tuple[AxisStrategy, ...]:
            index = [a.name for a in self.axes].index(axis)
            found = [self._along(node, s, index) for s in self.strategies(node, index)]
            return tuple(dict.fromkeys(s for s in found if s is not None))

        return Rule(operation.kind, along, lambda setting: self._work(node, setting))

    @property
    def output_placements(self) -> Placements:
        """The logits: each replica's own rows, whole on all of its ranks."""
        return by_replica(self.mesh)

    def _output_along(self, operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
        index = [a.name for a in self.axes].index(axis)
        return (AxisStrategy((self.output_placements[index],), ()),)

    def strategies(self, node: Node, axis: int) -> tuple[Strategy, ...]:
        """What the table has for a node along an axis."""
        replicas = self.axes[axis].name in self.mesh.groups[ATTN_DP]
        return RULES[node.op].along(self.types(node), replicas=replicas)

    def slots(self, node: Node) -> list[Slot | None]:
        """A node's inputs; None for an absent one."""
        return [None if name is None else self._slots[name] for name in node.inputs]

    def computed(self, node: Node) -> list[str]:
        """A node's outputs that are not bound."""
        return [name for name in node.outputs if not self.draft.values[name].is_bound]

    def fits(self, node: Node, strategy: Strategy, axis: int) -> bool:
        """Whether bound operands and annotations allow a strategy along an axis."""
        inputs = zip(self.slots(node), strategy.inputs, strict=False)
        outputs = zip(node.outputs, strategy.outputs, strict=True)
        return all(
            slot is None or self._allows(node, slot, wanted, axis) for slot, wanted in inputs
        ) and all(self._leaves(name, given, axis) for name, given in outputs)

    def _slot(self, name: str) -> Slot:
        value = self.draft.values[name]
        match value.storage:
            case WeightStorage():
                return Slot(name, "weight", value)
            case CacheStorage():
                return Slot(name, "cache", value)
            case InputStorage():
                return Slot(name, "free", value)
            case _:
                return Slot(name, "value", value)

    def _allows(self, node: Node, slot: Slot, wanted: Placement, axis: int) -> bool:
        if slot.kind == "free":
            return wanted == REPLICATE or isinstance(wanted, Shard)
        if slot.kind == "value":
            required = [
                edge
                for edge in self._edges.get(slot.name, ())
                if edge.side == "input" and f"{node.module}.".startswith(f"{edge.module}.")
            ]
            inner = max(required, key=lambda edge: len(edge.module), default=None)
            return inner is None or inner.required[axis] in (None, wanted)
        actual = slot.value.placements[axis]
        return actual == wanted or (
            slot.kind == "weight" and (actual, wanted) == (REPLICATE, PARTIAL)
        )

    def _leaves(self, name: str, given: Placement, axis: int) -> bool:
        value = self.draft.values[name]
        if value.is_bound:
            return value.placements[axis] == given
        return all(
            edge.required[axis] in (None, given)
            for edge in self._edges.get(name, ())
            if edge.side == "output"
        )

    def _along(self, node: Node, strategy: Strategy, axis: int) -> AxisStrategy | None:
        if not self.fits(node, strategy, axis):
            return None
        inputs: dict[str, Placement] = {}
        masked = False
        for slot, wanted in zip(self.slots(node), strategy.inputs, strict=False):
            if slot is not None and slot.kind == "value":
                inputs[slot.name] = wanted
            masked |= slot is not None and slot.kind == "weight" and self._masks(slot, wanted, axis)
        outputs = [
            given
            for name, given in zip(node.outputs, strategy.outputs, strict=True)
            if not self.draft.values[name].is_bound
        ]
        bound = tuple(b.placements[axis] for b in self._bound(node))
        tag = _MASK if masked else ""
        if node.op == "add" and PARTIAL in outputs:
            tag = DEFERRED
        return AxisStrategy(tuple(inputs.values()), tuple(outputs), bound, tag)

    def _masks(self, slot: Slot, wanted: Placement, axis: int) -> bool:
        return wanted == PARTIAL and slot.value.placements[axis] == REPLICATE

    def _operation(self, name: str, node: Node) -> Operation:
        slots = [slot for slot in self.slots(node) if slot is not None]
        edges = tuple(
            (edge.side, edge.required)
            for value in (*(s.name for s in slots), *node.outputs)
            for edge in self._edges.get(value, ())
            if f"{node.module}.".startswith(f"{edge.module}.")
        )
        shape = tuple(None if s is None else (s.kind, s.value.type) for s in self.slots(node))
        attributes = tuple(sorted(node.attributes.items()))
        return Operation(
            name,
            node.op,
            tuple(dict.fromkeys(s.name for s in slots if s.kind == "value")),
            tuple(self.computed(node)),
            self._bound(node),
            detail=(shape, attributes, edges),
        )

    def _bound(self, node: Node) -> tuple[Bound, ...]:
        return tuple(
            Bound(slot.name, _whole(slot.value.type), slot.value.placements)
            for slot in self.slots(node)
            if slot is not None and slot.kind in ("weight", "cache")
        )

    def types(self, node: Node) -> OpTypes:
        """Global types and attributes of a node."""
        values = self.draft.values
        return OpTypes(
            tuple(None if name is None else values[name].type for name in node.inputs),
            tuple(values[name].type for name in node.outputs),
            node.attributes,
        )

    def _work(self, node: Node, setting: Setting) -> Work:
        """By the table's arithmetic on local types; a masked weight is one more copy."""
        operation = setting.operation
        names = (*operation.inputs, *operation.outputs, *(b.name for b in operation.bound))
        local = {name: setting.shape(i) for i, name in enumerate(names)}

        def tile(name: str) -> TensorType:
            value = self.draft.values[name]
            if isinstance(value.storage, InputStorage):
                rows, *others = value.type.shape
                return replace(value.type, shape=(rows // self.replicas, *others))
            return replace(value.type, shape=local.get(name, value.type.shape))

        types = OpTypes(
            tuple(None if name is None else tile(name) for name in node.inputs),
            tuple(tile(name) for name in node.outputs),
            node.attributes,
        )
        extra = setting.costs.kernel(0) if _MASK in setting.tags else FREE
        if DEFERRED in setting.tags:
            extra = deferral(setting.costs)
        view = OPS[node.op].schema.kind is OpKind.VIEW
        rule = RULES[node.op]
        way = cheapest(setting.costs, rule, types)
        return Work(rule.traffic(way), rule.flops(way), 0 if view else 1, extra)

    def _cuts(self) -> tuple[int, ...]:
        """Before the first add of each layer: behind attention, where little is left open."""
        cuts: dict[int, int] = {}
        for position, node in enumerate(self.draft.nodes):
            layer = layer_of(node.module)
            if layer is not None and node.op == "add":
                cuts.setdefault(layer, position)
        return tuple(sorted(cuts.values()))

    def _views(self) -> dict[str, View]:
        digits = self._natural_digits()
        views: dict[str, View] = {}
        for node in self.draft.nodes:
            for name in self.computed(node):
                type_ = self.draft.values[name].type
                inner = [
                    dividing_axes(self.axes, sorted(digits.get((name, dim), ())), extent)
                    for dim, extent in enumerate(type_.shape)
                ]
                views[name] = self.view(type_, inner)
        return views

    def view(self, type_: TensorType, inner: Sequence[Sequence[str]] = ()) -> View:
        """A value of a token dim and others that the axes `inner` may cut."""
        cut = list(inner or ((),) * len(type_.shape))
        rows = type_.shape[0] // self.replicas
        if rows in (self.draft.tokens, self.draft.sequences):
            cut[0] = token_axes(self.mesh, rows)
        return make_view(self.axes, type_.shape, cut, type_.dtype.itemsize)

    def _natural_digits(self) -> dict[tuple[str, int], set[str]]:
        """The axes that may cut each inner dim: those of a bound operand that it stems from."""
        digits: dict[tuple[str, int], set[str]] = {}
        grown = True
        while grown:
            before = sum(len(names) for names in digits.values())
            for node in self.draft.nodes:
                for axis in range(len(self.axes)):
                    self._spread(node, axis, digits)
            grown = sum(len(names) for names in digits.values()) > before
        return digits

    def _spread(self, node: Node, axis: int, digits: dict[tuple[str, int], set[str]]) -> None:
        name = self.axes[axis].name
        seeded = any(isinstance(b.placements[axis], Shard) for b in self._bound(node))
        for strategy in self.strategies(node, axis):
            if not self.fits(node, strategy, axis):
                continue
            cuts = [
                (value, placement.dim)
                for value, placement in (
                    *zip(node.inputs, strategy.inputs, strict=False),
                    *zip(node.outputs, strategy.outputs, strict=True),
                )
                if value is not None
                and isinstance(placement, Shard)
                and placement.dim > 0
                and not self.draft.values[value].is_bound
            ]
            if seeded or any(name in digits.get(cut, ()) for cut in cuts):
                for cut in cuts:
                    digits.setdefault(cut, set()).add(name)


def _whole(type_: TensorType) -> View:
    return View(type_.shape, ((),) * len(type_.shape), type_.dtype.itemsize)
