"""Rules of the ops that only select or re-view rows, columns and heads."""

from __future__ import annotations

from tscompile.ir.placement import Shard
from tscompile.rules.rule import S0, S1, OpTypes, P, R, Rule, Strategy, always, everywhere, rows


def _nothing(types: OpTypes) -> int:
    return 0


SELECT_ROWS = Rule(
    "select_rows",
    always(everywhere(2), Strategy((S1, R), (S1,)), Strategy((P, R), (P,))),
    _nothing,
    by_replica=Strategy((S0, S0), (S0,)),
)

_HEADS = always(Strategy((S1,), (S1,)), everywhere(1), Strategy((P,), (P,)), rows(1))
UNFLATTEN = Rule("unflatten", _HEADS, _nothing)
FLATTEN = Rule("flatten", _HEADS, _nothing)


def _split(types: OpTypes) -> tuple[Strategy, ...]:
    """The split dim stays whole."""
    parts = len(types.outputs)
    return (
        Strategy((R,), (R,) * parts),
        Strategy((P,), (P,) * parts),
        Strategy((S0,), (S0,) * parts, spread=True),
    )


def _narrow(types: OpTypes) -> tuple[Strategy, ...]:
    """A cut along another dim than the narrowed one changes nothing."""
    rank = len(types.outputs[0].shape)
    others = [Shard(dim) for dim in range(rank) if dim != types.attributes["dim"]]
    return (
        everywhere(1),
        *(Strategy((cut,), (cut,), spread=cut == S0) for cut in others),
        Strategy((P,), (P,)),
    )


SPLIT = Rule("split", _split, _nothing)
NARROW = Rule("narrow", _narrow, _nothing)
