"""Schemas of multi-head latent attention and of the cache write that feeds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.mla import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import integer, ranked, require, same, same_dtype


def _cache(op: str, value: TensorType | None) -> TensorType:
    cache = ranked(f"{op}.cache", value, 5)
    same(f"{op} cache layout", ("one latent", 1), ("cache.shape[1]", cache.shape[1]))
    same(f"{op} cache layout", ("one head", 1), ("cache.shape[2]", cache.shape[2]))
    return cache


def _infer_latent_write(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    latent = ranked("latent_write.latent", inputs[0], 2)
    rope = ranked("latent_write.rope", inputs[1], 3)
    cache = _cache("latent_write", inputs[2])
    slots = ranked("latent_write.slot_mapping", inputs[3], 1)
    integer("latent_write.slot_mapping", slots)
    same_dtype("latent_write", latent=latent, rope=rope, cache=cache)
    same("latent_write heads", ("rope.shape[1]", rope.shape[1]), ("one", 1))
    for name, rows in (("rope.shape[0]", rope.shape[0]), ("len(slots)", slots.shape[0])):
        same("latent_write tokens", ("latent.shape[0]", latent.shape[0]), (name, rows))
    width = latent.shape[1] + rope.shape[2]
    same("latent_write width", ("latent and rope", width), ("cache.shape[4]", cache.shape[4]))
    return (cache,)


def _infer_mla(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    query, rope = ranked("mla.query", inputs[0], 3), ranked("mla.query_rope", inputs[1], 3)
    cache, kv_b = _cache("mla", inputs[2]), ranked("mla.kv_b", inputs[3], 2)
    table = ranked("mla.block_table", inputs[4], 2)
    lengths = ranked("mla.seq_lens", inputs[5], 1)
    starts = ranked("mla.query_starts", inputs[6], 1)
    same_dtype("mla", query=query, query_rope=rope, cache=cache, kv_b=kv_b)
    integer("mla.block_table", table)
    integer("mla.seq_lens", lengths)
    integer("mla.query_starts", starts)
    same("mla tokens", ("query", query.shape[0]), ("query_rope", rope.shape[0]))
    same("mla heads", ("query", query.shape[1]), ("query_rope", rope.shape[1]))
    sequences = lengths.shape[0]
    same("mla sequences", ("len(seq_lens)", sequences), ("block tables", table.shape[0]))
    same("mla starts", ("len(seq_lens) + 1", sequences + 1), ("given", starts.shape[0]))
    width = kv_b.shape[1] + rope.shape[2]
    same("mla width", ("kv_b.shape[1] + query_rope", width), ("cache.shape[4]", cache.shape[4]))
    heads, nope = query.shape[1], query.shape[2]
    rows = kv_b.shape[0] // heads
    require(
        kv_b.shape[0] % heads == 0 and rows > nope,
        f"mla: kv_b has {kv_b.shape[0]} rows, but {heads} heads need a multiple of {heads}, over "
        f"{nope} each",
    )
    return (TensorType(query.dtype, (query.shape[0], heads, rows - nope)),)


latent_write = define(
    reference.latent_write, _infer_latent_write, outputs=("cache",), mutates={0: 2}
)
mla = define(reference.mla, _infer_mla)
