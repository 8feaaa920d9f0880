"""What fused ops do: the meanings of the ops that they stand for, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import MappingProxyType

from tskernels.schema import AttributeValue
from tsruntime.artifact.proof import collectives
from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.semantics.attention import kv_write, rotary
from tsruntime.artifact.proof.semantics.base import Attributes, Inputs, present
from tsruntime.artifact.proof.semantics.dense import linear, scaled_linear
from tsruntime.artifact.proof.semantics.elementwise import add, rms_norm, silu_mul
from tsruntime.artifact.proof.semantics.movement import split
from tsruntime.artifact.proof.tile import Local

_ROWS = MappingProxyType({"reduce": "sum", "dim": 0})


@cache
def _only(**attributes: AttributeValue) -> Attributes:
    """These attributes, one object for equal ones: look-ups tell them apart by identity."""
    return MappingProxyType(attributes)


def add_rms_norm(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """The sum, and its norm."""
    (total,) = add(traced, inputs[:2], _only())
    return (total, *rms_norm(traced, (total, inputs[2]), attributes))


def linear_silu_mul(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """The first half of the columns gates the second."""
    return _gated(traced, *linear(traced, inputs, _only()))


def scaled_linear_silu_mul(
    traced: Lookup, inputs: Inputs, attributes: Attributes
) -> tuple[Local, ...]:
    """The same of a product with a quantized weight."""
    return _gated(traced, *scaled_linear(traced, inputs, attributes))


def _gated(traced: Lookup, both: Local) -> tuple[Local, ...]:
    width, left = divmod(both.shape[1], 2)
    if left:
        raise Refusal(f"its product has {both.shape[1]} columns, not two equal halves")
    return silu_mul(traced, split(traced, (both,), _only(sizes=(width, width))), _only())


def rope_kv_write(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """The rotated query, and the cache with the rotated keys."""
    query, key, value, table, cache, slots = inputs
    (turned,) = rotary(traced, (key, table), attributes)
    written = kv_write(traced, (turned, value, cache, slots), _only())
    return (*rotary(traced, (query, table), attributes), *written)


def qk_norm_rope_kv_write(
    traced: Lookup, inputs: Inputs, attributes: Attributes
) -> tuple[Local, ...]:
    """The same of normed heads."""
    query, key, value, query_weight, key_weight, *rest = inputs
    norm = _only(eps=attributes["eps"])
    (query,) = rms_norm(traced, (query, query_weight), norm)
    (key,) = rms_norm(traced, (key, key_weight), norm)
    turned = _only(interleaved=attributes["interleaved"])
    return rope_kv_write(traced, (query, key, value, *rest), turned)


def all_reduce_add_rms_norm(
    traced: Lookup, members: Sequence[Inputs], attributes: Attributes
) -> Sequence[tuple[Local, ...]]:
    """Every member's sum of all, with its residual, and the norm of that."""
    return _normed(traced, members, attributes, collectives.all_reduce)


def reduce_scatter_add_rms_norm(
    traced: Lookup, members: Sequence[Inputs], attributes: Attributes
) -> Sequence[tuple[Local, ...]]:
    """The same of each member's own rows."""
    return _normed(traced, members, attributes, collectives.reduce_scatter)


def reduce_scatter_add_rms_norm_all_gather(
    traced: Lookup, members: Sequence[Inputs], attributes: Attributes
) -> Sequence[tuple[Local, ...]]:
    """The same, and all rows of what is normed; of the sum too where it says `both`."""
    own = _normed(traced, members, attributes, collectives.reduce_scatter)
    totals, normed = ([result[i] for result in own] for i in range(2))
    if attributes["both"]:
        totals = list(collectives.all_gather(totals, _ROWS))
    return list(zip(totals, collectives.all_gather(normed, _ROWS), strict=True))


def _normed(
    traced: Lookup,
    members: Sequence[Inputs],
    attributes: Attributes,
    reduce: Callable[[Sequence[Local], Attributes], tuple[Local, ...]],
) -> Sequence[tuple[Local, ...]]:
    norm = _only(eps=attributes["eps"])
    sums = reduce([present(inputs[0]) for inputs in members], _ROWS)
    found: list[tuple[Local, ...]] = []
    for (_, weight, residual), total in zip(members, sums, strict=True):
        if residual is None:
            found.append((total, *rms_norm(traced, (total, weight), norm)))
        else:
            (both,) = _added(traced, total, residual)
            found.append((both, *rms_norm(traced, (both, weight), norm)))
    return found


def _added(traced: Lookup, total: Local, residual: Local) -> tuple[Local, ...]:
    """Their sum in whichever order the traced program adds them: the same bits."""
    try:
        return add(traced, (residual, total), _only())
    except Refusal:
        return add(traced, (total, residual), _only())
