"""Rules of elementwise ops and norms."""

from __future__ import annotations

from tscompile.ir.placement import Shard
from tscompile.rules.rule import S0, S1, OpTypes, P, R, Rule, Strategy, everywhere, output_elements


def _cuts(types: OpTypes, dims: range, *, spread: bool) -> tuple[Strategy, ...]:
    """Both inputs and the output cut along one of `dims`."""
    rank = len(types.outputs[0].shape)
    cuts = [Shard(dim) for dim in dims if dim < rank]
    return tuple(Strategy((cut, cut), (cut,), spread=spread) for cut in cuts)


def _add(types: OpTypes) -> tuple[Strategy, ...]:
    """Sums of partial sums are partial; a Replicate beside a Partial would count many times."""
    partial = Strategy((P, P), (P,))
    return (everywhere(2), partial, *_cuts(types, range(3), spread=True))


def _silu_mul(types: OpTypes) -> tuple[Strategy, ...]:
    columns, rows = (_cuts(types, dims, spread=dims.start == 0) for dims in (range(1, 3), range(1)))
    return (*columns, everywhere(2), *rows)


def _rms_norm(types: OpTypes) -> tuple[Strategy, ...]:
    """Rows and heads are independent; a cut through the normed dim is not offered here."""
    heads = (Strategy((S1, R), (S1,)),) if len(types.outputs[0].shape) == 3 else ()
    return (*heads, everywhere(2), Strategy((S0, R), (S0,), spread=True))


ADD = Rule("add", _add, output_elements)
SILU_MUL = Rule("silu_mul", _silu_mul, lambda types: 6 * output_elements(types))
RMS_NORM = Rule("rms_norm", _rms_norm, lambda types: 4 * output_elements(types))
