"""Rules of mixtures of experts: routing, and the experts' networks."""

from __future__ import annotations

from tscompile.rules.rule import (
    S0,
    S1,
    S2,
    OpTypes,
    P,
    R,
    Rule,
    Strategy,
    always,
    elements,
    everywhere,
    size_in_bytes,
)

ROUTE = Rule(
    "route",
    always(Strategy((R, R, R), (R, R)), Strategy((S0, S0, R), (S0, S0), spread=True)),
    lambda types: 10 * elements(types.inputs[0]),
)


def _reached(types: OpTypes) -> tuple[int, int]:
    """How many (row, expert) pairs and how many experts of this rank its rows come to.

    As many as there are when every expert is chosen equally often, rounded up.
    """
    ids, here, all_of_them = types.inputs[1], types.inputs[3], types.whole[3]
    assert ids is not None
    assert here is not None
    assert all_of_them is not None
    count, held = all_of_them.shape[0], here.shape[0]
    pairs = -(-elements(ids) * held // count)
    return pairs, min(held, pairs)


def _experts_flops(types: OpTypes) -> int:
    """Three products of each row that comes to an expert."""
    gate = types.inputs[3]
    assert gate is not None
    _, width, hidden = gate.shape
    return _reached(types)[0] * 3 * 2 * width * hidden


def _experts_traffic(types: OpTypes) -> int:
    """The weights of the experts that rows come to; every row read and its result written."""
    gate = types.inputs[3]
    assert gate is not None
    held, touched = gate.shape[0], _reached(types)[1]
    rows = sum(size_in_bytes(t) for t in (*types.inputs[:3], *types.outputs))
    return rows + sum(size_in_bytes(t) for t in types.inputs[3:]) * touched // held


EXPERTS = Rule(
    "experts",
    always(
        everywhere(9),
        Strategy((R, R, R, *(S0,) * 6), (P,)),  # each rank some of the experts
        Strategy((R, R, R, S1, S1, S2, S1, S1, P), (P,)),  # each a part of every one's width
        Strategy((S0, S0, S0, *(R,) * 6), (S0,), spread=True),
    ),
    _experts_flops,
    _experts_traffic,
    exchanges=(Strategy((S0,) * 9, (S0,)),),
)
