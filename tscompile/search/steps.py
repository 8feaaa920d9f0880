"""Single reshard steps: one collective or local op over a set of axes, and what it runs as."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tscompile.cost.model import FREE, Collective, CostModel, Price
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Placements, Shard
from tscompile.search.layout import (
    MeshAxes,
    View,
    free_digits,
    ranks_of,
    tile_bytes,
    tile_shape,
)


class StepKind(StrEnum):
    """What changes a placement in one go."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    SLICE = "slice"
    MASK = "mask"


@dataclass(frozen=True, slots=True)
class Step:
    """`kind` over `axes` (innermost first). `scatter` is the dim that gets cut, `gather` the dim
    that gets whole, where there are such.
    """

    kind: StepKind
    axes: tuple[str, ...]
    scatter: int | None = None
    gather: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}[{','.join(self.axes)}]"


@dataclass(frozen=True, slots=True)
class Permute:
    """Local: view `dim` as `sizes` (outermost first), put them in `order`, flatten again."""

    dim: int
    sizes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Communicate:
    """A collective along `axes`; ranks are ordered by coordinate, the first axis innermost.

    A reduce-scatter and an all-to-all cut `scatter` into equal blocks, block i going to rank i;
    an all-gather and an all-to-all join along `gather` in rank order.
    """

    kind: Collective
    axes: tuple[str, ...]
    scatter: int | None = None
    gather: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """Local: of `dim` cut into equal blocks, the one of this rank's coordinate along `axes`."""

    dim: int
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mask:
    """Local: zeros unless this rank's coordinate along `axes` is 0."""

    axes: tuple[str, ...]


Action: TypeAlias = Permute | Communicate | Slice | Mask

_CHANGES: tuple[tuple[StepKind, type[Placement], type[Placement]], ...] = (
    (StepKind.ALL_REDUCE, type(PARTIAL), type(REPLICATE)),
    (StepKind.REDUCE_SCATTER, type(PARTIAL), Shard),
    (StepKind.ALL_GATHER, Shard, type(REPLICATE)),
    (StepKind.ALL_TO_ALL, Shard, Shard),
    (StepKind.SLICE, type(REPLICATE), Shard),
    (StepKind.MASK, type(REPLICATE), type(PARTIAL)),
)
_KINDS = {(source, target): kind for kind, source, target in _CHANGES}


def step_between(axes: tuple[str, ...], source: Placement, target: Placement) -> Step | None:
    """The step that takes all of `axes` from `source` to `target`; None where no single one does.

    Shard to Partial is none: filling up with zeros costs more than gathering what one needs.
    """
    kind = _KINDS.get((type(source), type(target)))
    if kind is None or source == target:
        return None
    scatter = target.dim if isinstance(target, Shard) else None
    gather = source.dim if isinstance(source, Shard) else None
    return Step(kind, axes, scatter, gather)


def single_changes(
    axes: MeshAxes, choices: tuple[tuple[Placement, ...], ...]
) -> Iterator[tuple[tuple[int, ...], Placement, Placement, Step]]:
    """Every step that there is where axis i may be placed as `choices[i]` says.

    Yields the indices of the axes that change, from what, to what, and the step.
    """
    for count in range(1, len(axes) + 1):
        for chosen in itertools.combinations(range(len(axes)), count):
            shared = [p for p in choices[chosen[0]] if all(p in choices[i] for i in chosen)]
            names = tuple(axes[i].name for i in chosen)
            for source, target in itertools.permutations(shared, 2):
                step = step_between(names, source, target)
                if step is not None:
                    yield chosen, source, target, step


def after(axes: MeshAxes, placements: Placements, step: Step) -> Placements:
    """What `step` makes of `placements`."""
    target: Placement = REPLICATE
    if step.scatter is not None:
        target = Shard(step.scatter)
    elif step.kind is StepKind.MASK:
        target = PARTIAL
    return tuple(
        target if axis.name in step.axes else placement
        for axis, placement in zip(axes, placements, strict=True)
    )


def actions(axes: MeshAxes, view: View, source: Placements, step: Step) -> tuple[Action, ...]:
    """What runs: the step, and a local permute on the side where digits are no neighbours."""
    if step.kind is StepKind.MASK:
        return (Mask(step.axes),)
    target = after(axes, source, step)
    middle: Action = Slice(step.scatter or 0, step.axes)
    if step.kind is not StepKind.SLICE:
        middle = Communicate(Collective(step.kind.value), step.axes, step.scatter, step.gather)
    run: list[Action] = [middle]
    if step.scatter is not None:
        run[:0] = _bring_out(axes, view, source, step.scatter, step.axes)
    if step.gather is not None:
        run += _put_back(axes, view, target, step.gather, step.axes)
    return tuple(run)


def _bring_out(
    axes: MeshAxes, view: View, source: Placements, dim: int, moved: tuple[str, ...]
) -> list[Action]:
    """From (digits in order, rest) to (moved digits, the others, rest)."""
    held = free_digits(axes, view, source, dim)
    wanted = [name for name in held if name in moved] + [n for n in held if n not in moved]
    return _permute(axes, view, source, dim, list(held), wanted)


def _put_back(
    axes: MeshAxes, view: View, target: Placements, dim: int, moved: tuple[str, ...]
) -> list[Action]:
    """From (moved digits, the others, rest) to (digits in order, rest)."""
    wanted = free_digits(axes, view, target, dim)
    held = [name for name in wanted if name in moved] + [n for n in wanted if n not in moved]
    return _permute(axes, view, target, dim, held, list(wanted))


def _permute(
    axes: MeshAxes, view: View, placements: Placements, dim: int, held: list[str], wanted: list[str]
) -> list[Action]:
    if held == wanted:
        return []
    extent = tile_shape(axes, view.shape, placements)[dim]
    sizes = [ranks_of(axes, (name,)) for name in held]
    rest = extent // ranks_of(axes, held)
    order = tuple(held.index(name) for name in wanted)
    return [Permute(dim, (*sizes, rest), (*order, len(held)))]


def step_price(costs: CostModel, view: View, source: Placements, step: Step) -> Price:
    """The step with its permutes. Blocks along another dim than the outermost are copied once."""
    axes = costs.axes
    target = after(axes, source, step)
    before, behind = tile_bytes(axes, view, source), tile_bytes(axes, view, target)
    match step.kind:
        case StepKind.MASK | StepKind.SLICE:
            price = costs.kernel(2 * behind)
        case _:
            price = costs.collective(Collective(step.kind.value), step.axes, before)
    return price + _copies(costs, view, source, step) + _inner(costs, view, source, step)


def _copies(costs: CostModel, view: View, source: Placements, step: Step) -> Price:
    """The local permutes."""
    axes, price = costs.axes, FREE
    if step.scatter is not None and _bring_out(axes, view, source, step.scatter, step.axes):
        price += costs.kernel(2 * tile_bytes(axes, view, source))
    if step.gather is not None:
        target = after(axes, source, step)
        if _put_back(axes, view, target, step.gather, step.axes):
            price += costs.kernel(2 * tile_bytes(axes, view, target))
    return price


def _inner(costs: CostModel, view: View, source: Placements, step: Step) -> Price:
    """Collectives move blocks of dim 0; along an inner dim the blocks are brought together."""
    if step.kind in (StepKind.SLICE, StepKind.MASK):
        return FREE
    axes, price = costs.axes, FREE
    for dim, placements in ((step.scatter, source), (step.gather, after(axes, source, step))):
        if dim is not None and _leading(axes, view, placements, dim) > 1:
            price += costs.kernel(2 * tile_bytes(axes, view, placements))
    return price


def _leading(axes: MeshAxes, view: View, placements: Placements, dim: int) -> int:
    count = 1
    for extent in tile_shape(axes, view.shape, placements)[:dim]:
        count *= extent
    return count
