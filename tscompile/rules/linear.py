"""Rules of the ops that hold large weights: linear and embedding."""

from __future__ import annotations

from tscompile.rules.rule import (
    S0,
    S1,
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


def _linear_flops(types: OpTypes) -> int:
    x = types.inputs[0]
    assert x is not None
    return 2 * elements(types.outputs[0]) * x.shape[-1]


LINEAR = Rule(
    "linear",
    always(
        everywhere(3),
        Strategy((R, S0, S0), (S1,)),  # by the weight's rows
        Strategy((S1, S1, P), (P,)),  # by columns: each rank adds a slice of the contraction
        Strategy((P, R, P), (P,)),
        Strategy((S0, R, R), (S0,), spread=True),
    ),
    _linear_flops,
)

SCALED_LINEAR = Rule(
    "scaled_linear",
    always(
        everywhere(4),
        Strategy((R, S0, S0, S0), (S1,)),  # as a plain one; scales are cut as the weight is
        Strategy((S1, S1, S1, P), (P,)),
        Strategy((P, R, R, P), (P,)),
        Strategy((S0, R, R, R), (S0,), spread=True),
    ),
    _linear_flops,
)

EMBEDDING = Rule(
    "embedding",
    always(
        everywhere(2),
        Strategy((R, S0), (P,)),  # ids of another rank's rows give zeros
        Strategy((R, S1), (S1,)),
        Strategy((S0, R), (S0,), spread=True),
    ),
    lambda types: 0,
    lambda types: 2 * size_in_bytes(types.outputs[0]),
)
