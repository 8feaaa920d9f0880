"""kv_write.native and attention.native: paged, grouped heads, no copy of the cache.

Every row sees its keys in one fixed order: the same bits in decode and in prefill of any chunks.
"""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import address, cache_extent, extent, grid, index_address, strides
from tskernels.signatures import float32, indices


def bind_kv_write(call: BoundCall) -> Kernel:
    """Copy key and value [T, h, D] into the cache's slots."""
    key, value = grid(call.tensor(0)), grid(call.tensor(1))
    cache, slots = call.tensor(2), call.tensor(3)
    return _cpu.kv_write(
        address(key),
        strides(key),
        address(value),
        strides(value),
        rows=key.shape[0],
        cache=address(cache),
        cache_shape=cache_extent(cache),
        slots=index_address(slots),
        keep=(key, value, cache, slots),
    )


def bind_attention(call: BoundCall) -> Kernel:
    """One pass over each row's keys with a running maximum, parallel over rows and key heads."""
    query, y = grid(call.tensor(0)), grid(call.outputs[0])
    cache, table, lengths, starts = (call.tensor(i) for i in range(1, 5))
    return _cpu.attention(
        address(query),
        strides(query),
        address(y),
        strides(y),
        shape=extent(query),
        cache=address(cache),
        cache_shape=cache_extent(cache),
        block_table=index_address(table),
        seq_lens=index_address(lengths),
        query_starts=index_address(starts),
        table_shape=(table.shape[0], table.shape[1]),
        scale=call.number("scale"),
        window=call.integer("window"),
        keep=(query, y, cache, table, lengths, starts),
    )


SPECS = (
    KernelSpec(
        "kv_write",
        "native",
        bind_kv_write,
        PERFORMANT,
        {**float32("key", "value", "cache"), **indices("slot_mapping")},
    ),
    KernelSpec(
        "attention",
        "native",
        bind_attention,
        PERFORMANT,
        {**float32("query", "cache"), **indices("block_table", "seq_lens", "query_starts")},
    ),
)
