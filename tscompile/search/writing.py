"""A solution as a draft program again, with a `reshard` node for every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tscompile.cost.model import FREE, CostModel
from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import GATHER_DIGITS, RESHARD, SCATTER_DIGITS, Node
from tscompile.ir.placement import PARTIAL, REPLICATE, Placements, local_shape
from tscompile.rules import RULES, OpTypes
from tscompile.search.exchange import exchanged
from tscompile.search.fused_ops import CHAINS, REDUCTIONS
from tscompile.search.layout import View
from tscompile.search.offers import reduced
from tscompile.search.operands import Slot
from tscompile.search.program import Program
from tscompile.search.reading import OUTPUT, Reading
from tscompile.search.reshard import Move
from tscompile.search.solution import Reshard, Run, Solution
from tscompile.search.steps import after, step_between
from tscompile.search.streams import IDENTITY
from tscompile.search.variants import cheapest
from tskernels.schema import TensorType
from tsruntime.artifact.schema import Attribute


class Writing:
    """A solution as a draft program: a name for each placement that a value is live in."""

    def __init__(
        self, reading: Reading, program: Program, solution: Solution, costs: CostModel
    ) -> None:
        self.reading, self.solution, self.draft = reading, solution, reading.draft
        self.values = {n: v for n, v in self.draft.values.items() if v.is_bound}
        self.variants = {n: {v.placements: n} for n, v in self.values.items()}
        self.streams: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.program, self.costs = program, costs

    def run(self) -> DraftProgram:
        """The placed program; its annotations are spent."""
        self._derive()
        for action in self.solution.actions:
            if isinstance(action, Reshard):
                view = self.program.values[action.value]
                self._reshard(action.value, view, action.move, self._module(action.position))
            elif action.option.kind != OUTPUT:
                self._run(action)
        return replace(
            self.draft,
            values=self.values,
            nodes=tuple(self.nodes),
            output=self.variants[self.draft.output][self.reading.output_placements],
            edges=(),
            predicted=self.solution.price,
        )

    def _derive(self) -> None:
        """What derives from inputs and constants alone, on every rank of each replica."""
        operands = self.reading.operands
        for node in operands.first:
            self.nodes.append(node)
            for name in node.outputs:
                placed = operands.slot(name).value
                self.values[name] = placed
                self.variants[name] = {placed.placements: name}

    def _source(self, position: int) -> Node:
        """The node that became the operation at `position`; the last one for the output."""
        name = self.program.operations[position].name
        return self.reading.nodes.get(name, self.draft.nodes[-1])

    def _module(self, position: int) -> str:
        return self._source(position).module

    def _run(self, run: Run) -> None:
        """The nodes of a strategy; those of a fused one in a row, marked as one."""
        names = [o.name for o in self.program.operations[run.position :][: run.span]]
        nodes = [self.reading.nodes[name] for name in names]
        placed = dict(zip(run.inputs, run.option.requires, strict=True))
        placed |= dict(zip(run.outputs, run.option.gives, strict=True))
        kind = run.option.kind
        if kind in REDUCTIONS:
            written = self._reduction(nodes, placed, scatter=not kind.startswith("all_reduce"))
        else:
            written = [node for member in nodes for node in self._node(member, placed)]
        op = {**REDUCTIONS, **CHAINS}.get(kind)
        mark = f"{op}:{nodes[-1].outputs[-1]}" if op else ""
        self.nodes += [replace(node, fused=mark) for node in written] if mark else written

    def _node(self, node: Node, placed: dict[str, Placements]) -> list[Node]:
        """A node under the strategy that places its values as `placed`, to which it adds its own.

        What it reads is brought before. An identity is another name of what it reads.
        """
        if node.op == IDENTITY:
            (source,), (name,) = node.inputs, node.outputs
            self.variants[name] = self.variants[source or ""]
            self.streams[name] = source or ""
            return []
        taken = self.reading.taken(node, placed)
        pairs = zip(self.reading.operands.slots(node), taken.inputs, strict=True)
        inputs = tuple(
            None if slot is None else self._operand(slot, wanted, node.module)
            for slot, wanted in pairs
        )
        computed = self.reading.computed(node)
        for name, placements in zip(node.outputs, taken.outputs, strict=True):
            if name in computed:
                value = self.draft.values[name]
                self.values[name] = DraftValue(name, value.type, placements, value.storage)
                self.variants[name] = {placements: name}
                placed[name] = placements
        written = self._cheapest(node.reading(inputs))
        if not taken.exchanged:
            return [written]
        nodes, made = exchanged(
            self.reading.mesh, written, taken.exchanged, self.values, self._fresh
        )
        self.values |= made
        return nodes

    def _reduction(
        self, nodes: Sequence[Node], placed: dict[str, Placements], *, scatter: bool
    ) -> list[Node]:
        """The reduction of a summand, the add (or none), the norm, and what is gathered again."""
        first, norm = nodes
        due = next(name for name in placed if PARTIAL in placed[name])
        total, normed = first.outputs[0], norm.outputs[0]
        within = reduced(placed[due], scatter=scatter)
        inner = dict.fromkeys(placed, within)
        written = [self._within(due, self.variants[due][placed[due]], placed[due], within, norm)]
        live = self.variants[due]
        self.variants[due] = {within: written[0].outputs[0]}
        written += self._node(first, inner)
        written += self._node(norm, inner)
        self.variants[due] = live
        for name in (normed, total):
            if placed[name] != within:
                source = self.variants[name][within]
                written.append(self._within(name, source, within, placed[name], norm))
                self.variants[name] = {placed[name]: written[-1].outputs[0]}
        return written

    def _within(
        self, name: str, source: str, before: Placements, behind: Placements, norm: Node
    ) -> Node:
        """A step that no one else sees: reads `source`, which holds the value `name`."""
        axes = tuple(
            axis.name
            for axis, a, b in zip(self.reading.axes, before, behind, strict=True)
            if a != b
        )
        changes = {(a, b) for a, b in zip(before, behind, strict=True) if a != b}
        step = step_between(axes, *changes.pop())
        assert step is not None
        move = Move(before, behind, step, FREE)
        return self._step(name, source, self.program.values[name], move, norm.module)

    def _operand(self, slot: Slot, wanted: Placements, module: str) -> str:
        """The name under which an operand is live as `wanted`, brought or viewed so if need be."""
        live = self.variants.setdefault(slot.name, {})
        if wanted not in live:
            if slot.name == slot.root:
                self._bring(slot, wanted, module)
            else:
                self._view(slot, wanted)
        return live[wanted]

    def _view(self, slot: Slot, wanted: Placements) -> None:
        view = self.reading.operands.views[slot.name]
        assert view.inputs[0] is not None
        source = self._operand(self.reading.operands.slot(view.inputs[0]), wanted, view.module)
        name = slot.name if not self.variants[slot.name] else self._fresh(slot.name)
        self.nodes.append(replace(view, inputs=(source,), outputs=(name,)))
        self.values[name] = replace(slot.value, name=name, placements=wanted)
        self.variants[slot.name][wanted] = name

    def _cheapest(self, node: Node) -> Node:
        """The node with the attributes of the variant that the search priced."""
        if not RULES[node.op].variants:
            return node

        def whole(name: str) -> DraftValue:
            return self.values.get(name) or self.draft.values[name]

        def tile(name: str) -> TensorType:
            value = whole(name)
            shape = local_shape(self.reading.mesh, value.type.shape, value.placements)
            return replace(value.type, shape=shape)

        types = OpTypes(
            tuple(None if name is None else tile(name) for name in node.inputs),
            tuple(tile(name) for name in node.outputs),
            node.attributes,
            tuple(None if name is None else whole(name).type for name in node.inputs),
        )
        return replace(node, attributes=cheapest(self.costs, RULES[node.op], types).attributes)

    def _bring(self, slot: Slot, wanted: Placements, module: str) -> None:
        """An input or weight as `wanted`: sliced or masked first, then gathered over replicas."""
        view = self.reading.rows.view(slot.value.type)
        at = slot.value.placements
        while at != wanted:
            changes = [(s, t) for s, t in zip(at, wanted, strict=True) if s != t]
            source, target = min(changes, key=lambda change: change[0] != REPLICATE)
            names = tuple(
                axis.name
                for axis, s, t in zip(self.reading.axes, at, wanted, strict=True)
                if (s, t) == (source, target)
            )
            step = step_between(names, source, target)
            assert step is not None, f"{slot.name} as {wanted}"
            move = Move(at, after(self.reading.axes, at, step), step, FREE)
            if move.target not in self.variants[slot.name]:
                self._reshard(slot.name, view, move, module)
            at = move.target

    def _reshard(self, name: str, view: View, move: Move, module: str) -> None:
        node = self._step(name, self.variants[name][move.source], view, move, module)
        self.nodes.append(node)
        self.variants[name][move.target] = node.outputs[0]

    def _step(self, name: str, source: str, view: View, move: Move, module: str) -> Node:
        """The node that moves the value `name`, which `source` holds."""
        plain = self.streams.get(name, name)
        result, step = self._fresh(f"{plain}.{_word(move.source, move.target)}"), move.step
        digits: dict[str, Attribute] = {
            key: view.digits[dim]
            for key, dim in ((SCATTER_DIGITS, step.scatter), (GATHER_DIGITS, step.gather))
            if dim is not None and len(view.digits[dim]) > 1
        }
        self.values[result] = DraftValue(result, self.draft.values[name].type, move.target)
        return Node(RESHARD, (source,), (result,), digits, module)

    def _fresh(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self.values or candidate in self.draft.values:
            number += 1
            candidate = f"{name}_{number}"
        return candidate


def _word(source: Placements, target: Placements) -> str:
    """What a reshard makes of its input, for the value's name."""
    changed = [t for s, t in zip(source, target, strict=True) if s != t]
    return "_".join(dict.fromkeys(type(t).__name__.lower() for t in changed))
