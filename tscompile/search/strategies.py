"""What a rule says of an op along one axis, and the joint strategies over all axes with prices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tscompile.ir.errors import NoStrategyError
from tscompile.ir.placement import Placement, Placements, Shard
from tscompile.search.costs import FREE, CostModel, Price
from tscompile.search.layout import MeshAxes, View, axes_where, tile_bytes, tile_shape
from tscompile.search.program import Operation


@dataclass(frozen=True, slots=True)
class AxisStrategy:
    """Placements along one axis under which each rank can run the op on its own tiles.

    `bound` speaks of the bound operands. `tag` names a way that costs differently (`all_to_all`).
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    bound: tuple[Placement, ...] = ()
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What one rank does: bytes moved, operations, launches, and what it pays beside the kernel."""

    moved: int
    flops: int = 0
    launches: int = 1
    extra: Price = FREE

    def price(self, costs: CostModel) -> Price:
        """Its price; work without launch is a view and free."""
        return (costs.kernel(self.moved, self.flops) if self.launches else FREE) + self.extra


@dataclass(frozen=True, slots=True)
class Setting:
    """An op under joint placements, as its rule prices it."""

    costs: CostModel
    operation: Operation
    views: tuple[View, ...]
    placements: tuple[Placements, ...]
    tags: tuple[str, ...]

    @property
    def axes(self) -> MeshAxes:
        """The mesh."""
        return self.costs.axes

    def shape(self, operand: int) -> tuple[int, ...]:
        """One rank's tile of an operand: inputs first, then outputs, then bound ones."""
        return tile_shape(self.axes, self.views[operand].shape, self.placements[operand])

    def bytes_(self, operand: int) -> int:
        """Bytes of that tile."""
        return tile_bytes(self.axes, self.views[operand], self.placements[operand])

    def total(self) -> int:
        """Bytes of all tiles: every operand read or written once."""
        return sum(self.bytes_(i) for i in range(len(self.views)))

    def tagged(self, tag: str) -> tuple[str, ...]:
        """The axes that go the way `tag`."""
        return tuple(a.name for a, t in zip(self.axes, self.tags, strict=True) if t == tag)

    def sharded(self, operand: int, dim: int) -> tuple[str, ...]:
        """The axes that cut `dim` of an operand."""
        return axes_where(self.axes, self.placements[operand], Shard(dim))


@dataclass(frozen=True, slots=True)
class Rule:
    """One op: its strategies along an axis (the second argument), and their work."""

    kind: str
    along: Callable[[Operation, str], tuple[AxisStrategy, ...]]
    work: Callable[[Setting], Work]


@dataclass(frozen=True, slots=True)
class Option:
    """A joint strategy: needed and given placements, its work, and how it is called."""

    kind: str
    requires: tuple[Placements, ...]
    gives: tuple[Placements, ...]
    work: Work
    note: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """The options of `span` operations run as one, over the values that enter and leave them."""

    span: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: tuple[Option, ...]


def options_of(
    costs: CostModel, rule: Rule, operation: Operation, values: Mapping[str, View]
) -> tuple[Option, ...]:
    """Every legal joint strategy of an op. Raises NoStrategyError where there is none."""
    views = (
        *(values[name] for name in operation.inputs),
        *(values[name] for name in operation.outputs),
        *(bound.view for bound in operation.bound),
    )
    per_axis = [
        [s for s in rule.along(operation, axis.name) if _fits(s, i, axis.name, operation, views)]
        for i, axis in enumerate(costs.axes)
    ]
    found = [_option(costs, rule, operation, views, j) for j in itertools.product(*per_axis)]
    if not found:
        stuck = [a.name for a, s in zip(costs.axes, per_axis, strict=True) if not s]
        raise NoStrategyError(
            f"no strategy of {operation.kind} fits its bound operands on axis {', '.join(stuck)}: "
            + ", ".join(f"{b.name} {b.placements[0]}" for b in operation.bound),
            remedy="annotate the weight so that a strategy of the op allows it",
            where=operation.name,
        )
    return tuple(found)


def _fits(
    strategy: AxisStrategy, axis: int, name: str, operation: Operation, views: Sequence[View]
) -> bool:
    """Whether bound operands lie so, and each cut is along a dim of which the axis is a digit."""
    bound = tuple(b.placements[axis] for b in operation.bound)
    if strategy.bound != bound:
        return False
    free = (*strategy.inputs, *strategy.outputs)
    return all(
        not isinstance(p, Shard) or (p.dim < len(v.digits) and name in v.digits[p.dim])
        for p, v in zip(free, views, strict=False)
    )


def _option(
    costs: CostModel,
    rule: Rule,
    operation: Operation,
    views: tuple[View, ...],
    joint: tuple[AxisStrategy, ...],
) -> Option:
    count = len(operation.inputs)
    requires = tuple(tuple(s.inputs[i] for s in joint) for i in range(count))
    gives = tuple(tuple(s.outputs[i] for s in joint) for i in range(len(operation.outputs)))
    bound = tuple(b.placements for b in operation.bound)
    tags = tuple(s.tag for s in joint)
    setting = Setting(costs, operation, views, (*requires, *gives, *bound), tags)
    note = " ".join(f"{tag}[{','.join(setting.tagged(tag))}]" for tag in sorted(set(tags)) if tag)
    return Option(operation.kind, requires, gives, rule.work(setting), note)
