"""What rotary embeddings, cache writes and attention do to tiles and sums."""

from __future__ import annotations

from dataclasses import replace

from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import EVERYTHING
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import Runs, length, shown, whole
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

READ = ("block_table", "seq_lens", "query_starts")
"""What attention is told of its sequences."""


def rotary_table(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """The angles of each row's position, for the whole of a head."""
    positions = indices(traced, "positions", inputs[0])
    frequencies = present(inputs[1]).only
    complete("inv_freq", frequencies)
    match = traced.find("rotary_table", attributes, positions, frequencies)
    whole_dim(traced, "inv_freq", frequencies, 0)
    columns = whole(traced[match.outputs[0]].type.shape[1])
    return one(Piece(match.outputs[0], (match.tiles[0][0], columns), EVERYTHING))


def rotary(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Each row by its own angles; heads are independent and whole."""
    x, table = present(inputs[0]).only, present(inputs[1]).only
    complete("input", x)
    complete("table", table)
    match = traced.find("rotary", attributes, x, table)
    equal("the rows of its input and of its table", match.tiles[0][0], match.tiles[1][0])
    whole_dim(traced, "table", table, 1)
    width = traced[match.outputs[0]].type.shape[2]
    equal("its heads and the whole of one", match.tiles[0][2], whole(width))
    return one(Piece(match.outputs[0], match.tiles[0], EVERYTHING))


def kv_write(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """All rows of one replica into its own pages, the heads that the pool holds."""
    key, value = (present(x).only for x in inputs[:2])
    cache, slots = pages(traced, inputs[2]), indices(traced, "slot_mapping", inputs[3])
    complete("key", key)
    complete("value", value)
    match = traced.find("kv_write", attributes, key, value, cache, slots)
    same_replica(traced, cache=cache, slot_mapping=slots)
    for name, tile in (("keys", match.tiles[0]), ("values", match.tiles[1])):
        equal(f"the rows of its {name} and of its slots", tile[0], slots.tile[0])
        equal(f"the heads of its {name} and of the cache", tile[1], cache.tile[2])
        equal(f"the width of its {name} and of the cache", tile[2], cache.tile[4])
    return one(replace(cache, number=match.outputs[0]))


def attention(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """All rows of one replica over its own pages; each query head by its own key head."""
    query, cache = present(inputs[0]).only, pages(traced, inputs[1])
    table, lengths, starts = (
        indices(traced, name, x) for name, x in zip(READ, inputs[2:5], strict=True)
    )
    sinks = None if inputs[5] is None else inputs[5].only
    complete("query", query)
    match = traced.find("attention", attributes, query, cache, table, lengths, starts, sinks)
    if sinks is not None:
        complete("sinks", sinks)
        equal("the heads of its query and of its sinks", match.tiles[0][1], match.tiles[5][0])
    same_replica(
        traced, query=query, cache=cache, block_table=table, seq_lens=lengths, query_starts=starts
    )
    width = traced[match.outputs[0]].type.shape[2]
    equal("its heads and the whole of one", match.tiles[0][2], whole(width))
    _match_heads(traced, match.tiles[0][1], query.number, cache)
    return one(Piece(match.outputs[0], match.tiles[0], EVERYTHING))


def _match_heads(traced: Lookup, heads: Runs, query: int, cache: Piece) -> None:
    """Local query head i reads local key head i // (local ratio): the global one must be right."""
    kv_heads = cache.tile[2]
    ratio = traced[query].type.shape[1] // traced[cache.number].type.shape[2]
    local_ratio, left = divmod(length(heads), length(kv_heads))
    listed = [head for start, stop in heads for head in range(start, stop)]
    keys = [head for start, stop in kv_heads for head in range(start, stop)]
    if left or any(keys[i // local_ratio] != head // ratio for i, head in enumerate(listed)):
        raise Refusal(
            f"its query heads {shown(heads)} do not belong to the key heads {shown(kv_heads)} "
            f"({ratio} query heads each)"
        )
