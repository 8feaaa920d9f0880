"""What latent attention and its cache write do to tiles and sums."""

from __future__ import annotations

from dataclasses import replace

from tsruntime.artifact.proof.held import EVERYTHING
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import joined, length, multiplied, shifted, whole
from tsruntime.artifact.proof.semantics.attention import READ
from tsruntime.artifact.proof.semantics.base import (
    Attributes,
    Inputs,
    complete,
    equal,
    indices,
    one,
    pages,
    present,
    same_replica,
    whole_dim,
)
from tsruntime.artifact.proof.tile import Local, Piece


def latent_write(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """All rows of one replica into its own pages, which have no heads to cut."""
    latent, rope = (present(x).only for x in inputs[:2])
    cache, slots = pages(traced, inputs[2]), indices(traced, "slot_mapping", inputs[3])
    complete("latent", latent)
    complete("rotary key", rope)
    match = traced.find("latent_write", attributes, latent, rope, cache, slots)
    same_replica(traced, cache=cache, slot_mapping=slots)
    whole_dim(traced, "cache", cache, 2)
    (rows, columns), (key_rows, _, key_columns), *_ = match.tiles
    equal("the rows of its latents and of its slots", rows, slots.tile[0])
    equal("the rows of its rotary keys and of its slots", key_rows, slots.tile[0])
    both = joined([columns, shifted(key_columns, length(columns))])
    equal("the columns of its latents and rotary keys and of the cache", both, cache.tile[4])
    return one(replace(cache, number=match.outputs[0]))


def mla(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """All rows of one replica over its own pages; each query head by its own rows of kv_b."""
    query, rope, kv_b = (present(inputs[i]).only for i in (0, 1, 3))
    cache = pages(traced, inputs[2])
    table, lengths, starts = (
        indices(traced, name, x) for name, x in zip(READ, inputs[4:], strict=True)
    )
    for name, piece in (("query", query), ("rotary query", rope), ("kv_b", kv_b)):
        complete(name, piece)
    match = traced.find("mla", attributes, query, rope, cache, kv_b, table, lengths, starts)
    same_replica(
        traced,
        query=query,
        query_rope=rope,
        cache=cache,
        block_table=table,
        seq_lens=lengths,
        query_starts=starts,
    )
    whole_dim(traced, "cache", cache, 2)
    whole_dim(traced, "kv_b", kv_b, 1)
    rows, heads, _ = match.tiles[0]
    equal("the heads of its two queries", heads, match.tiles[1][1])
    _, all_heads, value = traced[match.outputs[0]].type.shape
    made = traced[kv_b.number].type.shape[0] // all_heads
    equal("the rows of kv_b and those of its heads", kv_b.tile[0], multiplied(heads, made))
    rank = traced[kv_b.number].type.shape[1]
    turned = traced[cache.number].type.shape[4] - rank
    equal("the width of its query and the whole", match.tiles[0][2], whole(made - value))
    equal("the width of its rotary query and the whole", match.tiles[1][2], whole(turned))
    return one(Piece(match.outputs[0], (rows, heads, whole(value)), EVERYTHING))
