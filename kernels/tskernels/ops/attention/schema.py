"""Schemas of paged attention and of the cache write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.attention import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import integer, integer_attribute, ranked, require, same, same_dtype


def _cache(op: str, value: TensorType | None) -> TensorType:
    cache = ranked(f"{op}.cache", value, 5)
    same(f"{op} cache layout", ("keys and values", 2), ("cache.shape[1]", cache.shape[1]))
    return cache


def _infer_kv_write(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    key = ranked("kv_write.key", inputs[0], 3)
    value = ranked("kv_write.value", inputs[1], 3)
    cache = _cache("kv_write", inputs[2])
    slots = ranked("kv_write.slot_mapping", inputs[3], 1)
    integer("kv_write.slot_mapping", slots)
    same_dtype("kv_write", key=key, value=value, cache=cache)
    same("kv_write shapes", ("key", list(key.shape)), ("value", list(value.shape)))
    same("kv_write tokens", ("key.shape[0]", key.shape[0]), ("len(slots)", slots.shape[0]))
    same("kv_write heads", ("key.shape[1]", key.shape[1]), ("cache.shape[2]", cache.shape[2]))
    same("kv_write width", ("key.shape[2]", key.shape[2]), ("cache.shape[4]", cache.shape[4]))
    return (cache,)


def _infer_attention(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    query = ranked("attention.query", inputs[0], 3)
    cache = _cache("attention", inputs[1])
    table = ranked("attention.block_table", inputs[2], 2)
    lengths = ranked("attention.seq_lens", inputs[3], 1)
    starts = ranked("attention.query_starts", inputs[4], 1)
    same_dtype("attention", query=query, cache=cache)
    integer("attention.block_table", table)
    integer("attention.seq_lens", lengths)
    integer("attention.query_starts", starts)
    sequences = lengths.shape[0]
    same("attention sequences", ("len(seq_lens)", sequences), ("block tables", table.shape[0]))
    same("attention starts", ("len(seq_lens) + 1", sequences + 1), ("given", starts.shape[0]))
    same("attention width", ("query", query.shape[2]), ("cache", cache.shape[4]))
    heads, kv_heads = query.shape[1], cache.shape[2]
    require(
        heads % kv_heads == 0,
        f"attention: {heads} query heads are no multiple of {kv_heads} key heads",
    )
    if inputs[5] is not None:
        sinks = ranked("attention.sinks", inputs[5], 1)
        same_dtype("attention", query=query, sinks=sinks)
        same("attention sinks", ("query heads", heads), ("len(sinks)", sinks.shape[0]))
    window = integer_attribute(attributes, "window")
    require(window >= 0, f"attention: window is {window}, but 0 (none) is the least")
    return (query,)


kv_write = define(reference.kv_write, _infer_kv_write, outputs=("cache",), mutates={0: 2})
attention = define(reference.attention, _infer_attention)
