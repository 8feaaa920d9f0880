"""kv_write.native and attention.native: paged, grouped heads, no copy of the cache.

Every row sees its keys in one fixed order: the same bits in decode and in prefill of any chunks.
"""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec, Trait
from tskernels.layout import cache_extent, grid, index_address
from tskernels.signatures import float32, indices


def bind_kv_write(call: BoundCall) -> Kernel:
    """Copy key and value [T, h, D] into the cache's slots."""
    key, value = grid(call.tensor(0)), grid(call.tensor(1))
    cache = call.tensor(2)
    return _cpu.kv_write(
        key.address,
        key.strides,
        value.address,
        value.strides,
        rows=key.extent[0],
        cache=cache.data_ptr(),
        cache_shape=cache_extent(cache),
        slots=index_address(call.tensor(3)),
        keep=call,
    )


def bind_attention(call: BoundCall) -> Kernel:
    """One pass over each row's keys with a running maximum, parallel over rows and key heads."""
    query, y = grid(call.tensor(0)), grid(call.outputs[0])
    cache, table, lengths, starts = (call.tensor(i) for i in range(1, 5))
    return _cpu.attention(
        query.address,
        query.strides,
        y.address,
        y.strides,
        shape=query.extent,
        cache=cache.data_ptr(),
        cache_shape=cache_extent(cache),
        block_table=index_address(table),
        seq_lens=index_address(lengths),
        query_starts=index_address(starts),
        table_shape=(table.shape[0], table.shape[1]),
        scale=call.number("scale"),
        window=call.integer("window"),
        keep=call,
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
        traits=(Trait("takes no sinks", lambda query: query.dtypes[5] is None),),
    ),
)
