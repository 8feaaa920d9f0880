"""attention.flashinfer_fa3: FlashAttention 3 of FlashInfer, from a kernel pack, for many rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tskernels.kernel import PERFORMANT, Capability, KernelQuery, KernelSpec, Trait, compiled
from tskernels.launch import ALIGNED, Address, CallLayout, LaunchPlan, PackLaunch
from tskernels.ops.attention.cuda import plan_single
from tskernels.packs.sources import FLASHINFER_FA3
from tskernels.schema import DType
from tskernels.signatures import indices

_WIDTH: Final = 128
_BLOCK_ROWS: Final = 128
_LEAST_PAGE: Final = 8
"""Tokens of a page of which a tile has no more than a warp can fetch, one part a lane."""
_MOST_PROCESSORS: Final = 144
"""Multiprocessors of the largest chip with this architecture."""
_ARRAYS: Final = 7
"""Arrays of the list with an entry for each tile of each head."""


def plan_fa3(call: CallLayout) -> LaunchPlan:
    """One launch over a list of tiles, which is made of the step's lengths on the host.

    Before it, sequences with one row have theirs computed as in a decode step: a tile has rows of
    one head alone, and most of it would be idle. ValueError where an operand does not lie as the
    tensor copy engine needs it.
    """
    query, cache, table, output = (*(call.input(i) for i in range(3)), call.outputs[0])
    for operand in (query, output):
        step = ALIGNED // operand.dtype.itemsize
        if operand.alignment % ALIGNED or any(stride % step for stride in operand.strides[:2]):
            raise ValueError(f"attention of {operand} does not begin each head on {ALIGNED} bytes")
    (rows, heads), (sequences, most_pages) = query.shape[:2], table.shape
    pages, _, key_heads, page_size = cache.shape[:4]
    size = list_bytes(rows, sequences, heads)
    run = PackLaunch(
        FLASHINFER_FA3.name,
        "flashinfer_fa3_run",
        (*(Address("input", i) for i in range(3)), Address("step", 0), Address("output", 0)),
        (
            *(rows, sequences, heads, key_heads, page_size, pages),
            *(*query.strides[:2], *output.strides[:2]),
        ),
        (call.number("scale"),),
    )
    prepare = PackLaunch(
        FLASHINFER_FA3.name,
        "flashinfer_fa3_list",
        (Address("input", 3), Address("input", 4), Address("host", 0), Address("step", 0)),
        (rows, sequences, heads, most_pages, size),
    )
    return replace(plan_single(call), from_pack=(run,), prepare=(prepare,), step_bytes=size)


def list_bytes(rows: int, sequences: int, heads: int) -> int:
    """Bytes of the list of tiles of a program."""
    tiles = -(-rows // _BLOCK_ROWS) + sequences - 1
    return _ARRAYS * _rounded(4 * tiles * heads) + _rounded(4 * (_MOST_PROCESSORS + 1))


def _rounded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _is_wide(query: KernelQuery) -> bool:
    shape = query.shapes[0]
    return shape is not None and shape[2] == _WIDTH


def _is_plain(query: KernelQuery) -> bool:
    return query.dtypes[5] is None and query.attributes.get("window", 0) == 0


def _has_whole_parts(query: KernelQuery) -> bool:
    cache = query.shapes[1]
    return cache is not None and cache[3] >= _LEAST_PAGE and cache[3].bit_count() == 1


_TRAITS: Final = (
    Trait(f"takes heads {_WIDTH} wide", _is_wide),
    Trait("takes neither sinks nor a window", _is_plain),
    Trait(f"takes pages of a power of two, from {_LEAST_PAGE} tokens on", _has_whole_parts),
)

SPECS = (
    KernelSpec(
        "attention",
        "flashinfer_fa3",
        compiled,
        PERFORMANT + 1,
        {
            **dict.fromkeys(("query", "cache"), (DType.BFLOAT16,)),
            **indices("block_table", "seq_lens", "query_starts"),
        },
        Capability("cuda", ("sm_90",)),
        mode="extend",
        traits=_TRAITS,
        launches=plan_fa3,
        pack=FLASHINFER_FA3.name,
    ),
)
