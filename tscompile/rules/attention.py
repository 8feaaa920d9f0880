"""Rules of attention and what stands around it: rotary embedding and the paged cache."""

from __future__ import annotations

from tscompile.rules.rule import (
    S0,
    S1,
    S2,
    OpTypes,
    R,
    Rule,
    Strategy,
    always,
    elements,
    everywhere,
    output_elements,
    size_in_bytes,
)

ROTARY_TABLE = Rule(
    "rotary_table",
    always(everywhere(2), Strategy((S0, R), (S0,), spread=True)),
    lambda types: 20 * output_elements(types),
)

ROTARY = Rule(
    "rotary",
    always(
        Strategy((S1, R), (S1,)),
        everywhere(2),
        Strategy((S0, S0), (S0,), spread=True),
    ),
    lambda types: 3 * output_elements(types),
)

KV_WRITE = Rule(
    "kv_write",
    always(Strategy((S1, S1, S2, R), (S2,)), everywhere(4)),
    lambda types: 0,
    lambda types: 2 * (size_in_bytes(types.inputs[0]) + size_in_bytes(types.inputs[1])),
    by_replica=Strategy((S0,) * 4, (S0,)),
)


def _attention_flops(types: OpTypes) -> int:
    """Scores and sums over as many keys as there are rows: contexts are unknown at build time."""
    query = types.inputs[0]
    assert query is not None
    return 4 * elements(query) * query.shape[0]


ATTENTION = Rule(
    "attention",
    always(Strategy((S1, S2, R, R, R, S0), (S1,)), everywhere(6)),
    _attention_flops,
    lambda types: 4 * size_in_bytes(types.outputs[0]),
    by_replica=Strategy((*(S0,) * 5, R), (S0,)),
    by_sharing=Strategy((S1, R, R, R, R, S0), (S1,)),
)
