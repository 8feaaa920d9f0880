"""Rules of elementwise ops and norms."""

from __future__ import annotations

from tscompile.ir.placement import Shard
from tscompile.rules.rule import S0, S1, OpTypes, P, R, Rule, Strategy, everywhere, output_elements


def _cuts(types: OpTypes, inputs: int, dims: range) -> tuple[Strategy, ...]:
    """Every input and the output cut along one of `dims`."""
    return tuple(
        Strategy((Shard(d),) * inputs, (Shard(d),), tokens=d == 0)
        for d in dims
        if d < len(types.outputs[0].shape)
    )


def _add(types: OpTypes) -> tuple[Strategy, ...]:
    """Sums of partial sums are partial; a Replicate beside a Partial would count many times."""
    return (
        *_cuts(types, 2, range(1, 3)),
        everywhere(2),
        Strategy((P, P), (P,)),
        *_cuts(types, 2, range(1)),
    )


def _silu_mul(types: OpTypes) -> tuple[Strategy, ...]:
    return (*_cuts(types, 2, range(1, 3)), everywhere(2), *_cuts(types, 2, range(1)))


def _rms_norm(types: OpTypes) -> tuple[Strategy, ...]:
    """Rows and heads are independent; a cut through the normed dim is not offered here."""
    heads = (Strategy((S1, R), (S1,)),) if len(types.outputs[0].shape) == 3 else ()
    return (*heads, everywhere(2), Strategy((S0, R), (S0,), tokens=True))


ADD = Rule("add", _add, output_elements)
SILU_MUL = Rule("silu_mul", _silu_mul, lambda types: 6 * output_elements(types))
RMS_NORM = Rule("rms_norm", _rms_norm, lambda types: 4 * output_elements(types))
