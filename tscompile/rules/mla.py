"""Rules of multi-head latent attention, absorbed or expanded, and of its cache write."""

from __future__ import annotations

from dataclasses import dataclass

from tscompile.rules.rule import (
    S0,
    S1,
    OpTypes,
    R,
    Rule,
    Strategy,
    always,
    elements,
    everywhere,
    size_in_bytes,
)

PRICED_CONTEXT = 1024
"""Tokens that a sequence holds where attention is priced, contexts being unknown at build time;
fewer where no sequence can hold as many, more where a prefill chunk alone is longer.
"""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """One rank's T new tokens of S sequences that hold C each, h heads; widths of their parts."""

    tokens: int
    sequences: int
    context: int
    heads: int
    nope: int
    rope: int
    rank: int
    value: int


def _sizes(types: OpTypes) -> _Sizes:
    query, rope, cache, kv_b, table, lengths, _ = types.inputs
    assert query is not None
    assert rope is not None
    assert cache is not None
    assert kv_b is not None
    assert table is not None
    assert lengths is not None
    tokens, heads, nope = query.shape
    sequences = lengths.shape[0]
    most = table.shape[1] * cache.shape[3]
    return _Sizes(
        tokens,
        sequences,
        min(max(PRICED_CONTEXT, tokens // sequences), most),
        heads,
        nope,
        rope.shape[2],
        kv_b.shape[1],
        types.outputs[0].shape[2],
    )


def _flops(types: OpTypes) -> int:
    """Products that make keys and values (or take queries in and out), then scores and sums."""
    n = _sizes(types)
    pairs = n.tokens * n.context * n.heads
    through = n.heads * n.rank * (n.nope + n.value)
    if types.attributes["absorbed"]:
        return 2 * n.tokens * through + 2 * pairs * (2 * n.rank + n.rope)
    known = n.sequences * n.context
    return 2 * known * through + 2 * pairs * (n.nope + n.rope + n.value)


def _traffic(types: OpTypes) -> int:
    """Latents, kv_b, queries and results; what is made between them is written and read again."""
    n = _sizes(types)
    query, rope, cache, kv_b, *_ = types.inputs
    assert cache is not None
    latents = n.sequences * n.context * (n.rank + n.rope)
    if types.attributes["absorbed"]:
        between = n.tokens * n.heads * (2 * n.rank + n.rope)
    else:
        between = n.sequences * n.context * n.heads * (n.nope + n.value)
    ends = sum(size_in_bytes(t) for t in (query, rope, kv_b, types.outputs[0]))
    return ends + (latents + 2 * between) * cache.dtype.itemsize


MLA = Rule(
    "mla",
    always(Strategy((S1, S1, R, S0, R, R, R), (S1,)), everywhere(7)),
    _flops,
    _traffic,
    by_replica=Strategy((S0, S0, S0, R, S0, S0, S0), (S0,)),
    variants=({"absorbed": False}, {"absorbed": True}),
)


def _written(types: OpTypes) -> int:
    latent, rope, cache, _ = types.inputs
    assert cache is not None
    return 2 * (elements(latent) + elements(rope)) * cache.dtype.itemsize


LATENT_WRITE = Rule(
    "latent_write",
    always(everywhere(4)),
    lambda types: 0,
    _written,
    by_replica=Strategy((S0,) * 4, (S0,)),
)
