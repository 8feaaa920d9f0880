"""What the search found, laid out in order: the strategy of each op and the reshards before it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tscompile.cost.model import FREE, Price
from tscompile.ir.placement import Placements
from tscompile.ir.repeats import Repeat, rolled, runs, times
from tscompile.search.graph import Indices
from tscompile.search.reshard import Move
from tscompile.search.segment import Choices, Compiled, Cut
from tscompile.search.stack import Best, Passage, best_run


@dataclass(frozen=True, slots=True)
class Reshard:
    """One step of a value from one placement to another, run before operation `position`."""

    position: int
    value: str
    move: Move


@dataclass(frozen=True, slots=True)
class Option:
    """A strategy that was taken: the kernel's kind, and where its inputs and outputs lie."""

    kind: str
    note: str
    requires: tuple[Placements, ...]
    gives: tuple[Placements, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """`span` operations from `position` on by one strategy."""

    position: int
    span: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    option: Option
    price: Price


Action: TypeAlias = Reshard | Run


@dataclass(frozen=True, slots=True)
class Solution:
    """The cheapest run of a program: its price, actions in order, and how its layers repeat.

    `produced` is where each value was produced. Price and repeats are of the whole program, actions
    of the one that was compiled, where some segments stand for several.
    """

    price: Price
    actions: tuple[Action, ...]
    produced: dict[str, Placements]
    repeats: tuple[Repeat, ...]

    def total(self) -> Price:
        """The sum of all actions, which is the price where no segment stands for several."""
        total = FREE
        for action in self.actions:
            total += _price(action)
        return total


def solve(compiled: Compiled) -> Solution:
    """Search, and lay out what was found."""
    return laid_in_order(compiled, best_run(compiled))


def laid_in_order(compiled: Compiled, best: Best) -> Solution:
    """What the best run does, in order.

    Raises UnlikeLayersError where segments that stand for several are not run alike.
    """
    passages = best.passages()
    taken = _taken(compiled, rolled(passages, compiled.program.repeats))
    produced = dict(compiled.program.given)
    for run in taken:
        produced.update(zip(run.outputs, run.option.gives, strict=True))
    actions = _in_order(compiled, taken, produced)
    ways = [(p.segment, p.entry, p.exit) for p in passages]
    total = _total(compiled, actions)
    if total != best.price:
        raise OverflowError(f"{best.price} is not what the actions cost: {total}")
    return Solution(best.price, tuple(actions), produced, tuple(runs(ways)))


def _total(compiled: Compiled, actions: Sequence[Action]) -> Price:
    """The sum of all actions, those of repeated segments as often."""
    starts = [cut.start for cut in compiled.sequence]
    total = FREE
    for action in actions:
        price = _price(action)
        count = times(compiled.program.repeats, bisect(starts, action.position) - 1)
        total += Price(price.picoseconds * count, price.launches * count, price.wire_bytes * count)
    return total


def _price(action: Action) -> Price:
    return action.price if isinstance(action, Run) else action.move.price


def _taken(compiled: Compiled, passages: Sequence[Passage]) -> list[Run]:
    found: list[Run] = []
    known: dict[tuple[int, int], tuple[Option, Price]] = {}
    for cut, passage in zip(compiled.sequence, passages, strict=True):
        for origin in passage.origins:
            choices, column = origin.choices, origin.option
            key = id(choices), column  # equal segments are one, with the same choices
            if key not in known:
                option = _option(compiled, cut, choices, column)
                known[key] = option, choices.price_of(column)
            inputs = tuple([cut.names[i] for i in choices.inputs])
            outputs = tuple([cut.names[i] for i in choices.outputs])
            start = cut.start + origin.position
            found.append(Run(start, choices.span, inputs, outputs, *known[key]))
    return found


def _option(compiled: Compiled, cut: Cut, choices: Choices, column: int) -> Option:
    def placements(values: Sequence[int], rows: Indices) -> tuple[Placements, ...]:
        views = [compiled.program.values[cut.names[value]] for value in values]
        graphs = [compiled.reshards[view].graph for view in views]
        numbers: list[int] = rows[:, column].tolist()
        pairs = zip(graphs, numbers, strict=True)
        return tuple(graph.placements[number] for graph, number in pairs)

    batch = choices.batch
    return Option(
        batch.kind,
        batch.notes[column] if batch.notes else "",
        placements(choices.inputs, batch.requires),
        placements(choices.outputs, batch.gives),
    )


def _in_order(
    compiled: Compiled, taken: Sequence[Run], produced: dict[str, Placements]
) -> list[Action]:
    """Each step of a value's tree just before the first use that lies beyond it."""
    uses: dict[str, list[Placements]] = {}
    for run in taken:
        for value, placements in zip(run.inputs, run.option.requires, strict=True):
            uses.setdefault(value, []).append(placements)
    pending = {value: _tree(compiled, value, produced[value], uses[value]) for value in uses}
    actions: list[Action] = []
    for run in taken:
        for value, placements in zip(run.inputs, run.option.requires, strict=True):
            moves = _towards(pending[value], placements)
            actions += [Reshard(run.position, value, move) for move in moves]
        actions.append(run)
    return actions


def _tree(
    compiled: Compiled, value: str, root: Placements, used: Sequence[Placements]
) -> dict[Placements, Move]:
    """The moves of a value's tree by where they end."""
    reshards = compiled.reshards[compiled.program.values[value]]
    moves = reshards.tree(reshards.index(root), [reshards.index(u) for u in used])
    return {move.target: move for move in moves}


def _towards(pending: dict[Placements, Move], placements: Placements) -> list[Move]:
    """Takes out the moves that still lie before `placements`, the first one first."""
    found: list[Move] = []
    while placements in pending:
        move = pending.pop(placements)
        found.append(move)
        placements = move.source
    return found[::-1]
