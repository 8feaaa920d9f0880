"""Fused strategies: consecutive ops as one kernel, also with the collectives around them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Placements, Shard
from tscompile.search.costs import Collective, CostModel, Price
from tscompile.search.layout import View, axes_where, is_legal, tile_bytes
from tscompile.search.program import Operation
from tscompile.search.strategies import Batch, Option, Work

CHAINS: tuple[tuple[str, ...], ...] = (
    ("add", "rms_norm"),
    ("linear", "linear", "linear"),
    ("linear", "linear"),
    ("linear", "linear", "silu_mul"),
)
"""Kinds of consecutive ops that one kernel can do, each reading what one before it reads or gives.
"""

R, P, S0 = REPLICATE, PARTIAL, Shard(0)


def chain_at(operations: Sequence[Operation], start: int, kinds: Sequence[str]) -> bool:
    """Whether the ops from `start` are of these kinds and hang together."""
    chain = operations[start : start + len(kinds)]
    if tuple(op.kind for op in chain) != tuple(kinds):
        return False
    seen: set[str] = {*chain[0].inputs, *chain[0].outputs}
    for op in chain[1:]:
        if not seen.intersection(op.inputs):
            return False
        seen.update(op.inputs, op.outputs)
    return True


def joined(
    costs: CostModel,
    first: Batch,
    second: Batch,
    values: Mapping[str, View],
    dead: AbstractSet[str],
    name: str,
) -> Batch:
    """Both in one kernel, where they agree on the values that they share.

    A value that the first gives and the second reads is not read again; one that is `dead` after
    them is not written either.
    """
    entering = (*first.inputs, *(v for v in second.inputs if v not in first.outputs))
    inputs = tuple(dict.fromkeys(entering))
    outputs = tuple(v for v in (*first.outputs, *second.outputs) if v not in dead)
    shared = [v for v in second.inputs if v in first.outputs or v in first.inputs]
    unwritten = [v for v in first.outputs if v in dead]
    options: list[Option] = []
    for one, two in _agreeing(first, second, shared):
        at = _places(first, one) | _places(second, two)
        saved = sum(tile_bytes(costs.axes, values[v], at[v]) for v in (*shared, *unwritten))
        work = Work(
            one.work.moved + two.work.moved - saved,
            one.work.flops + two.work.flops,
            extra=one.work.extra + two.work.extra,
        )
        option = Option(name, tuple(at[v] for v in inputs), tuple(at[v] for v in outputs), work)
        options.append(option)
    return Batch(first.span + second.span, inputs, outputs, tuple(options))


def _agreeing(
    first: Batch, second: Batch, shared: Sequence[str]
) -> Iterator[tuple[Option, Option]]:
    """The pairs that place the shared values alike."""
    by_shared: dict[tuple[Placements, ...], list[Option]] = {}
    for two in second.options:
        at = _places(second, two)
        by_shared.setdefault(tuple(at[v] for v in shared), []).append(two)
    for one in first.options:
        at = _places(first, one)
        for two in by_shared.get(tuple(at[v] for v in shared), ()):
            yield one, two


def _places(batch: Batch, option: Option) -> dict[str, Placements]:
    at = dict(zip(batch.inputs, option.requires, strict=True))
    at.update(zip(batch.outputs, option.gives, strict=True))
    return at


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A collective in the norm's kernel, along each of its axes: summand, residual, sum, normed."""

    name: str
    along: tuple[Placement, Placement, Placement, Placement]
    wired: Callable[[CostModel, tuple[str, ...], int], Price | None]


def _one_shot(costs: CostModel, axes: tuple[str, ...], held: int) -> Price | None:
    return costs.one_shot(axes, held)


def _scatter(costs: CostModel, axes: tuple[str, ...], held: int) -> Price:
    return costs.wired(Collective.REDUCE_SCATTER, axes, held)


def _there_and_back(costs: CostModel, axes: tuple[str, ...], held: int) -> Price:
    ranks = 1
    for axis in costs.axes:
        ranks *= axis.size if axis.name in axes else 1
    back = costs.wired(Collective.ALL_GATHER, axes, held // ranks)
    return _scatter(costs, axes, held) + back


def _there_and_both_back(costs: CostModel, axes: tuple[str, ...], held: int) -> Price:
    ranks = 1
    for axis in costs.axes:
        ranks *= axis.size if axis.name in axes else 1
    back = costs.wired(Collective.ALL_GATHER, axes, 2 * held // ranks)
    return _scatter(costs, axes, held) + back


REDUCTIONS = (
    _Reduction("all_reduce", (P, R, R, R), _one_shot),
    _Reduction("reduce_scatter", (P, S0, S0, S0), _scatter),
    _Reduction("reduce_scatter+all_gather", (P, S0, S0, R), _there_and_back),
    _Reduction("reduce_scatter+all_gather_both", (P, S0, R, R), _there_and_both_back),
)


def reductions(
    costs: CostModel, add: Operation, norm: Operation, values: Mapping[str, View], summand: int
) -> Batch:
    """The fused strategies of `add` (or `identity`, without residual) and the norm of its sum.

    `summand` says which input of the add is the one that is due a reduction.
    """
    view = values[add.outputs[0]]
    options: list[Option] = []
    for reduction in REDUCTIONS:
        for along in _along(costs, reduction, view):
            option = _reduced(costs, reduction, along, view, add, summand)
            if option is not None:
                options.append(option)
    return Batch(2, add.inputs, (*add.outputs, *norm.outputs), tuple(options))


def _along(
    costs: CostModel, reduction: _Reduction, view: View
) -> Iterator[tuple[tuple[Placement, ...], ...]]:
    """For summand, residual, sum and normed their placements; some axis is reduced."""
    quiet = ((R,) * 4, (S0,) * 4)
    for joint in itertools.product((*quiet, reduction.along), repeat=len(costs.axes)):
        columns = tuple(zip(*joint, strict=True))
        if reduction.along in joint and all(is_legal(costs.axes, view, c) for c in columns):
            yield columns


def _reduced(
    costs: CostModel,
    reduction: _Reduction,
    along: tuple[tuple[Placement, ...], ...],
    view: View,
    add: Operation,
    summand: int,
) -> Option | None:
    due, residual, total, normed = along
    axes = axes_where(costs.axes, due, P)
    wired = reduction.wired(costs, axes, tile_bytes(costs.axes, view, due))
    if wired is None:
        return None
    touched = along if len(add.inputs) == 2 else (due, total, normed)
    moved = sum(tile_bytes(costs.axes, view, placements) for placements in touched)
    requires = [residual] * len(add.inputs)
    requires[summand] = due
    work = Work(moved, extra=wired)
    name = f"{reduction.name}+{add.kind}+rms_norm"
    return Option(name, tuple(requires), (total, normed), work, f"[{','.join(axes)}]")


def batches_at(
    costs: CostModel,
    operations: Sequence[Operation],
    start: int,
    values: Mapping[str, View],
    single: Sequence[Batch],
    dead_after: Callable[[int], AbstractSet[str]],
) -> list[Batch]:
    """All fused strategies that begin at `start`. `dead_after(end)`: values not read from `end`."""
    found: list[Batch] = []
    for kinds in CHAINS:
        if chain_at(operations, start, kinds):
            end = start + len(kinds)
            dead = dead_after(end)
            batch = single[start]
            for position in range(start + 1, end):
                gone = dead if position == end - 1 else frozenset[str]()
                batch = joined(costs, batch, single[position], values, gone, "+".join(kinds))
            found.append(batch)
    found += _reductions_at(costs, operations, start, values)
    return [batch for batch in found if batch.options]


def _reductions_at(
    costs: CostModel, operations: Sequence[Operation], start: int, values: Mapping[str, View]
) -> list[Batch]:
    pair = operations[start : start + 2]
    if len(pair) < 2 or pair[1].kind != "rms_norm" or pair[1].inputs != pair[0].outputs:
        return []
    if pair[0].kind == "add":
        return [reductions(costs, pair[0], pair[1], values, summand) for summand in (0, 1)]
    if pair[0].kind == "identity":
        return [reductions(costs, pair[0], pair[1], values, 0)]
    return []
