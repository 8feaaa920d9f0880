"""A solution as a draft program again, with a `reshard` node for every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tscompile.cost.model import FREE, CostModel
from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import GATHER_DIGITS, RESHARD, SCATTER_DIGITS, Node
from tscompile.ir.placement import REPLICATE, Placements, local_shape
from tscompile.rules import RULES, OpTypes, Strategy
from tscompile.search.layout import View
from tscompile.search.operands import Slot
from tscompile.search.program import Program
from tscompile.search.reading import OUTPUT, Reading
from tscompile.search.reshard import Move
from tscompile.search.solution import Reshard, Run, Solution
from tscompile.search.steps import after, step_between
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
                self._node(action)
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

    def _node(self, run: Run) -> None:
        reading, node = self.reading, self._source(run.position)
        placed = dict(zip(run.inputs, run.option.requires, strict=True))
        placed |= dict(zip(run.outputs, run.option.gives, strict=True))
        taken = [self._strategy(node, placed, axis) for axis in range(len(reading.axes))]
        inputs: list[str | None] = []
        for position, slot in enumerate(reading.operands.slots(node)):
            wanted = tuple(strategy.inputs[position] for strategy in taken)
            inputs.append(None if slot is None else self._operand(slot, wanted, node.module))
        for name in reading.computed(node):
            self.values[name] = replace(self.draft.values[name], placements=placed[name])
            self.variants[name] = {placed[name]: name}
        self.nodes.append(self._cheapest(replace(node, inputs=tuple(inputs))))

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

    def _strategy(self, node: Node, placed: Mapping[str, Placements], axis: int) -> Strategy:
        """The first of the table that places what the search chose as it chose."""
        for strategy in self.reading.strategies(node, axis):
            if self.reading.fits(node, strategy, axis) and all(
                name is None
                or (root := self.reading.operands.slot(name).root) not in placed
                or placed[root][axis] == placement
                for name, placement in (
                    *zip(node.inputs, strategy.inputs, strict=False),
                    *zip(node.outputs, strategy.outputs, strict=True),
                )
            ):
                return strategy
        raise AssertionError(f"{node.op} has no strategy for {placed}")

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
        source, target, step = move.source, move.target, move.step
        result = self._fresh(f"{name}.{_word(source, target)}")
        digits: dict[str, Attribute] = {
            key: view.digits[dim]
            for key, dim in ((SCATTER_DIGITS, step.scatter), (GATHER_DIGITS, step.gather))
            if dim is not None and len(view.digits[dim]) > 1
        }
        self.nodes.append(Node(RESHARD, (self.variants[name][source],), (result,), digits, module))
        self.values[result] = DraftValue(result, self.draft.values[name].type, target)
        self.variants[name][target] = result

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
