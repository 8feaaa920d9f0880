"""Rules for abstract programs: along one axis, the placements under which each op runs locally."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from tscompile.cost.model import FREE, Collective, Price
from tscompile.ir.placement import PARTIAL, REPLICATE, Shard
from tscompile.search.program import Operation
from tscompile.search.strategies import DEFERRED, AxisStrategy, Rule, Setting, Work, deferral

R, P = REPLICATE, PARTIAL
S0, S1, S2 = Shard(0), Shard(1), Shard(2)

_SQUARES = "all_reduce"
"""How a norm over a sharded dim gets its sum of squares."""

_CANDIDATE_BYTES = 8
"""A sampling candidate: token id int32 and logit float32."""


def _always(*strategies: AxisStrategy) -> Callable[[Operation, str], tuple[AxisStrategy, ...]]:
    return lambda operation, axis: strategies


def _streams(setting: Setting) -> Work:
    """Every operand read or written once."""
    return Work(setting.total())


def _elementwise(operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
    count = len(operation.inputs)
    return tuple(AxisStrategy((p,) * count, (p,)) for p in (R, S0, S1))


def _add(operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
    """Sums of partial sums are partial; a Replicate beside a Partial must be masked first."""
    return (*_elementwise(operation, axis), AxisStrategy((P, P), (P,), tag=DEFERRED))


def _add_work(setting: Setting) -> Work:
    """A sum that waits is rounded once more on each rank, so waiting has to save something."""
    late = setting.tagged(DEFERRED)
    return Work(setting.total(), extra=deferral(setting.costs) if late else FREE)


def _identity(operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
    return tuple(AxisStrategy((p,), (p,)) for p in (R, P, S0, S1))


def _norm_work(setting: Setting) -> Work:
    """Over a sharded dim the sums of squares (float32, one a row) are reduced first."""
    cut = setting.tagged(_SQUARES)
    if not cut:
        return _streams(setting)
    rows = setting.shape(0)[0] * 4
    square = setting.costs.kernel(setting.bytes_(0))
    reduce = setting.costs.collective(Collective.ALL_REDUCE, cut, rows)
    return Work(setting.total(), extra=square + reduce)


def _linear_work(setting: Setting) -> Work:
    rows, inner = setting.shape(0)
    return Work(setting.total(), 2 * rows * inner * setting.shape(1)[1])


def _embedding_work(setting: Setting) -> Work:
    """Rows of the table are read as they are written."""
    return Work(2 * setting.bytes_(0))


def _select(operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
    """Rows may come from anywhere in the replica, and of no other; linear, so a sum may wait."""
    keep = tuple(AxisStrategy((p,), (p,)) for p in (R, P, S1))
    if operation.attribute(f"replicas.{axis}"):
        return (*keep, AxisStrategy((S0,), (S0,)))
    return keep


def _select_work(setting: Setting) -> Work:
    return Work(2 * setting.bytes_(1))


def _attention_work(setting: Setting) -> Work:
    """Reads the cache as its bound view says: [sequences, 2, heads, context, dim]."""
    query = setting.shape(0)
    context = setting.operation.attribute("context")
    return Work(setting.total(), 4 * prod(query) * context)


_ATTENTION = (
    AxisStrategy((S1, S1, S1), (S1,), (S2,)),  # heads
    AxisStrategy((S1, R, R), (S1,), (R,)),  # query heads; the KV head is replicated
    AxisStrategy((S0, S0, S0), (S0,), (S0,)),  # each replica its own sequences
    AxisStrategy((R, R, R), (R,), (R,)),
)


def _attention(operation: Operation, axis: str) -> tuple[AxisStrategy, ...]:
    """With queries, keys and values apart, or packed in one value where they are cut alike."""
    if len(operation.inputs) == 3:
        return _ATTENTION
    alike = (s for s in _ATTENTION if len(set(s.inputs)) == 1)
    return tuple(AxisStrategy(s.inputs[:1], s.outputs, s.bound) for s in alike)


def _sample_work(setting: Setting) -> Work:
    """From whole logits, or from the best of each shard, which are gathered."""
    cut = setting.tagged("candidates")
    if not cut:
        return Work(setting.bytes_(0))
    held = setting.shape(0)[0] * setting.operation.attribute("candidates") * _CANDIDATE_BYTES
    gather = setting.costs.collective(Collective.ALL_GATHER, cut, held)
    return Work(setting.bytes_(0), extra=gather + setting.costs.kernel(held))


def _experts_work(setting: Setting) -> Work:
    """Rows that reach this rank's experts, and the weights of those that are touched.

    By all-gather every rank sees all tokens and keeps its experts' share; by all-to-all it also
    sees those of the ranks that it exchanges with.
    """
    operation = setting.operation
    count, top = operation.attribute("experts"), operation.attribute("top_k")
    tokens, hidden = setting.shape(0)
    here, up, _ = setting.shape(2)
    away = setting.tagged("all_to_all")
    seen = tokens * prod(a.size for a in setting.axes if a.name in away)
    rows = -(-seen * top * here // count)
    touched = min(here, rows)
    weights = (setting.bytes_(2) + setting.bytes_(3)) * touched // here
    moved = setting.bytes_(0) + setting.bytes_(1) + weights
    flops = 2 * rows * hidden * (up + up // 2)
    return Work(moved, flops, extra=_exchange(setting, away) if away else FREE)


def _exchange(setting: Setting, away: tuple[str, ...]) -> Price:
    """To the experts and back. With static capacity every rank may need every row; a backend that
    sends only valid rows sends each token to at most top_k ranks.
    """
    ranks = prod(a.size for a in setting.axes if a.name in away)
    operation, held = setting.operation, setting.bytes_(0)
    copies = ranks
    if operation.attribute("valid_rows_only"):
        copies = min(ranks, operation.attribute("top_k"))
    leg = setting.costs.collective(Collective.ALL_TO_ALL, away, copies * held)
    pack = setting.costs.kernel(2 * copies * held)
    return leg + leg + pack + pack


_ALL = (
    Rule(
        "linear",
        _always(
            AxisStrategy((R,), (R,), (R,)),
            AxisStrategy((R,), (S1,), (S0,)),  # by the weight's rows
            AxisStrategy((S1,), (P,), (S1,)),  # by columns: a slice of the contraction each
            AxisStrategy((P,), (P,), (R,)),
            AxisStrategy((S0,), (S0,), (R,)),  # by tokens
        ),
        _linear_work,
    ),
    Rule(
        "embedding",
        _always(
            AxisStrategy((), (R,), (R,)),
            AxisStrategy((), (P,), (S0,)),  # ids of another rank's rows give zeros
            AxisStrategy((), (S1,), (S1,)),
            AxisStrategy((), (S0,), (R,)),
        ),
        _embedding_work,
    ),
    Rule(
        "rms_norm",
        _always(
            AxisStrategy((R,), (R,)),
            AxisStrategy((S0,), (S0,)),
            AxisStrategy((S1,), (S1,), tag=_SQUARES),
        ),
        _norm_work,
    ),
    Rule("add", _add, _add_work),
    Rule("identity", _identity, lambda setting: Work(0, launches=0)),
    Rule("silu_mul", _elementwise, _streams),
    Rule("attention", _attention, _attention_work),
    Rule("select_rows", _select, _select_work),
    Rule(
        "sample",
        _always(
            AxisStrategy((R,), (R,)),
            AxisStrategy((S1,), (R,), tag="candidates"),
            AxisStrategy((S0,), (S0,)),
        ),
        _sample_work,
    ),
    Rule("output", _always(AxisStrategy((R,), ())), lambda setting: Work(0, launches=0)),
    Rule(
        "experts",
        _always(
            AxisStrategy((R,), (R,), (R, R)),
            AxisStrategy((S0,), (S0,), (R, R)),
            AxisStrategy((R,), (P,), (S1, S2)),  # each rank a part of every expert's width
            AxisStrategy((R,), (P,), (S0, S0)),  # each rank some experts
            AxisStrategy((S0,), (S0,), (S0, S0), tag="all_to_all"),
        ),
        _experts_work,
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.kind: rule for rule in _ALL})


def rule_of(operation: Operation) -> Rule:
    """The rule of an op's kind."""
    return RULES[operation.kind]
