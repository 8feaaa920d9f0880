"""A solution as a draft program again, with a `reshard` node for every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import RESHARD, Node
from tscompile.ir.placement import Placements, replicated
from tscompile.rules import Strategy
from tscompile.search.reading import OUTPUT, Reading
from tscompile.search.solution import Reshard, Run, Solution


class Writing:
    """A solution as a draft program: a name for each placement that a value is live in."""

    def __init__(self, reading: Reading, solution: Solution) -> None:
        self.reading, self.solution, self.draft = reading, solution, reading.draft
        self.values = {n: v for n, v in self.draft.values.items() if v.is_bound}
        self.variants = {n: {v.placements: n} for n, v in self.values.items()}
        self.nodes: list[Node] = []

    def run(self) -> DraftProgram:
        """The placed program; its annotations are spent."""
        for action in self.solution.actions:
            if isinstance(action, Reshard):
                move = action.move
                self._reshard(action.value, move.source, move.target, self._module(action.position))
            elif action.option.kind != OUTPUT:
                self._node(action)
        whole = replicated(self.reading.mesh)
        return replace(
            self.draft,
            values=self.values,
            nodes=tuple(self.nodes),
            output=self.variants[self.draft.output][whole],
            edges=(),
        )

    def _module(self, position: int) -> str:
        return self.draft.nodes[min(position, len(self.draft.nodes) - 1)].module

    def _node(self, run: Run) -> None:
        reading, node = self.reading, self.draft.nodes[run.position]
        placed = dict(zip(run.inputs, run.option.requires, strict=True))
        placed |= dict(zip(run.outputs, run.option.gives, strict=True))
        taken = [self._strategy(node, placed, axis) for axis in range(len(reading.axes))]
        inputs: list[str | None] = []
        for position, slot in enumerate(reading.slots(node)):
            if slot is None:
                inputs.append(None)
                continue
            wanted = tuple(strategy.inputs[position] for strategy in taken)
            if wanted not in self.variants[slot.name]:
                self._reshard(slot.name, slot.value.placements, wanted, node.module)
            inputs.append(self.variants[slot.name][wanted])
        self.nodes.append(replace(node, inputs=tuple(inputs)))
        for name in reading.computed(node):
            self.values[name] = replace(self.draft.values[name], placements=placed[name])
            self.variants[name] = {placed[name]: name}

    def _strategy(self, node: Node, placed: Mapping[str, Placements], axis: int) -> Strategy:
        """The first of the table that places what the search chose as it chose."""
        for strategy in self.reading.strategies(node):
            if self.reading.fits(node, strategy, axis) and all(
                name is None or name not in placed or placed[name][axis] == placement
                for name, placement in (
                    *zip(node.inputs, strategy.inputs, strict=False),
                    *zip(node.outputs, strategy.outputs, strict=True),
                )
            ):
                return strategy
        raise AssertionError(f"{node.op} has no strategy for {placed}")

    def _reshard(self, name: str, source: Placements, target: Placements, module: str) -> None:
        result = self._fresh(f"{name}.{_word(source, target)}")
        self.nodes.append(Node(RESHARD, (self.variants[name][source],), (result,), {}, module))
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
