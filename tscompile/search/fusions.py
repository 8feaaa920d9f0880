"""Fused strategies: consecutive ops as one kernel, also with the collectives around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

import numpy as np

from tscompile.cost.model import CostModel
from tscompile.search.graph import Indices
from tscompile.search.layout import View
from tscompile.search.program import Operation
from tscompile.search.reductions import REDUCTIONS, reduced
from tscompile.search.strategies import Batch
from tscompile.search.tiles import tile_sizes

CHAINS: tuple[tuple[str, ...], ...] = (
    ("add", "rms_norm"),
    ("linear", "linear", "linear"),
    ("linear", "linear"),
    ("linear", "linear", "silu_mul"),
    ("scaled_linear", "scaled_linear", "scaled_linear"),
    ("scaled_linear", "scaled_linear"),
    ("scaled_linear", "scaled_linear", "silu_mul"),
)
"""Kinds of consecutive ops that one kernel can do, each reading what one before reads or gives."""

SIDE_BY_SIDE: tuple[tuple[str, ...], ...] = (
    ("rotary", "rotary", "kv_write"),
    ("rms_norm", "rms_norm", "rotary", "rotary", "kv_write"),
)
"""Likewise, of queries and keys, which share nothing."""

_LONGEST = max(len(kinds) for kinds in (*CHAINS, *SIDE_BY_SIDE))

_SUMMANDS: Mapping[str, tuple[int, ...]] = {"add": (0, 1), "identity": (0,)}
"""Which inputs of an op before a norm a kernel may reduce."""


def reach(operations: Sequence[Operation], start: int) -> int:
    """How many ops from `start` on are of kinds that some fused strategy takes; 0 for none."""
    return _reach(tuple([op.kind for op in operations[start : start + _LONGEST]]))


@lru_cache(maxsize=1024)
def _reach(kinds: tuple[str, ...]) -> int:
    chains = [chain for chain in (*CHAINS, *SIDE_BY_SIDE) if kinds[: len(chain)] == chain]
    pair = 2 if kinds[:1] and kinds[0] in _SUMMANDS and kinds[1:2] == ("rms_norm",) else 0
    return max([pair, *map(len, chains)])


def batches_at(
    costs: CostModel,
    operations: Sequence[Operation],
    values: Mapping[str, View],
    single: Sequence[Batch],
    last: Mapping[str, int],
) -> list[Batch]:
    """All fused strategies of the first of `operations`, with a `single` batch each.

    `last` is the position of the last op that reads each of their outputs.
    """
    found: list[Batch] = []
    for kinds in (*CHAINS, *SIDE_BY_SIDE):
        if chained(operations, kinds):
            end = len(kinds)
            batch = single[0]
            for position in range(1, end):
                dead = {v for v in last if last[v] < end} if position == end - 1 else set[str]()
                batch = joined(costs, batch, single[position], values, dead)
            found.append(batch)
    pair = operations[:2]
    if len(pair) == 2 and pair[1].kind == "rms_norm" and pair[1].inputs == pair[0].outputs:
        found += [
            reduced(costs, reduction, pair[0], pair[1], values, summand)
            for reduction in REDUCTIONS
            for summand in _SUMMANDS.get(pair[0].kind, ())
        ]
    return [batch for batch in found if len(batch)]


def chained(operations: Sequence[Operation], kinds: Sequence[str]) -> bool:
    """Whether the first ops are of these kinds and hang together."""
    chain = operations[: len(kinds)]
    if tuple(op.kind for op in chain) != tuple(kinds):
        return False
    seen: set[str] = {*chain[0].inputs, *chain[0].outputs}
    for op in chain[1:]:
        if kinds in CHAINS and not seen.intersection(op.inputs):
            return False
        seen.update(op.inputs, op.outputs)
    return True


def joined(
    costs: CostModel,
    first: Batch,
    second: Batch,
    values: Mapping[str, View],
    dead: AbstractSet[str],
) -> Batch:
    """Both in one kernel, where they agree on the values that they share.

    A value that the first gives or reads is not read again by the second; one that it gives and
    that is `dead` after them is not written either.
    """
    entering = (*first.inputs, *(v for v in second.inputs if v not in first.outputs))
    inputs = tuple(dict.fromkeys(entering))
    outputs = tuple(v for v in (*first.outputs, *second.outputs) if v not in dead)
    shared = [v for v in second.inputs if v in first.outputs or v in first.inputs]
    unwritten = [v for v in first.outputs if v in dead]
    one, two = _agreeing(first.places(), second.places(), shared)
    at = {v: p[two] for v, p in second.places().items()}
    at |= {v: p[one] for v, p in first.places().items()}
    saved = np.zeros(len(one), np.int64)
    for value in (*shared, *unwritten):
        saved += tile_sizes(costs.axes, values[value], at[value])
    return Batch(
        f"{first.kind}+{second.kind}",
        first.span + second.span,
        inputs,
        outputs,
        np.array([at[v] for v in inputs], np.int64).reshape(len(inputs), len(one)),
        np.array([at[v] for v in outputs], np.int64).reshape(len(outputs), len(one)),
        first.moved[one] + second.moved[two] - saved,
        first.flops[one] + second.flops[two],
        1,
        first.extra[one] + second.extra[two],
    )


def _agreeing(
    first: Mapping[str, Indices], second: Mapping[str, Indices], shared: Sequence[str]
) -> tuple[Indices, Indices]:
    """The pairs of columns that place the shared values alike."""
    left = _key(first, shared)
    right = _key(second, shared)
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left, "left")
    count = np.searchsorted(right[order], left, "right") - low
    one = np.repeat(np.arange(len(left)), count)
    inside = np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
    return one, order[np.repeat(low, count) + inside]


def _key(places: Mapping[str, Indices], shared: Sequence[str]) -> Indices:
    """Equal for columns that place the shared values alike; all alike where nothing is shared."""
    key = np.zeros_like(next(iter(places.values())))
    for value in shared:
        key = key * (1 << 20) + places[value]
    return key
