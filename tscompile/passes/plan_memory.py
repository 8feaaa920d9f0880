"""Give every value its storage: an arena by liveness, aliases for views, pages for the cache."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor

from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.errors import KvCacheError
from tscompile.ir.graph import Node, layer_of
from tscompile.ir.repeats import Repeats, UnlikeLayersError
from tscompile.ir.request import KvCacheRequest
from tscompile.ir.strides import contiguous_strides
from tscompile.passes.unfold import alike, following
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, OpKind, TensorType
from tsruntime.artifact.schema import ArenaStorage, CacheStorage, KvCache

_LAYER = re.compile(r"\blayers\.\d+")

ALIGNMENT = 64
"""Bytes that every arena offset is a multiple of: a cache line, and a vector register."""


def plan_memory(draft: Draft, kv: KvCacheRequest) -> Draft:
    """Arena offsets and strides for what ops produce, and the numbers of KV pages.

    Raises KvCacheError where the pool cannot hold one sequence of the maximum length, or the host
    memory that is given not one page, and UnlikeLayersError where layers that stand for several
    would not all lie alike.
    """
    cache = replace(draft.kv_cache, pages=_pages(draft, kv), host_pages=_host_pages(draft, kv))
    programs = tuple(
        _with_arena(_with_pages(p, cache.pages), draft.repeats) for p in draft.programs
    )
    return replace(draft, kv_cache=cache, programs=programs)


def page_bytes(cache: KvCache) -> int:
    """Bytes that one page takes on one rank, over all layers."""
    return sum(
        len(group.layers)
        * group.planes
        * group.kv_heads
        * cache.page_size
        * group.head_dim
        * group.dtype.itemsize
        for group in cache.groups
    )


def _pages(draft: Draft, kv: KvCacheRequest) -> int:
    """Pages of the pool, the null page counted, which no sequence can use."""
    size = page_bytes(draft.kv_cache)
    pages = kv.pages if kv.pages is not None else (kv.memory or 0) // size
    longest = max(pages - 1, 0) * kv.page_size
    wanted = draft.limits.max_model_len
    if longest < wanted:
        needed = draft.limits.max_pages + 1
        raise KvCacheError(
            f"max_model_len = {wanted} does not fit the KV cache: {pages} pages of "
            f"{kv.page_size} tokens, one of them reserved, hold {longest}",
            remedy=f"set max_model_len to at most {longest}, or give kv_cache "
            f"{needed} pages ({needed * size} bytes a rank)",
            where="limits.max_model_len",
        )
    return pages


def _host_pages(draft: Draft, kv: KvCacheRequest) -> int:
    if kv.host_memory is None:
        return kv.host_pages
    size = page_bytes(draft.kv_cache)
    if kv.host_memory < size:
        raise KvCacheError(
            f"host_memory of {kv.host_memory} bytes is less than one page of {size}",
            remedy="give kv_cache more host_memory, or none",
            where="kv_cache.host_memory",
        )
    return kv.host_memory // size


def _with_pages(program: DraftProgram, pages: int) -> DraftProgram:
    def sized(value: DraftValue) -> DraftValue:
        if not isinstance(value.storage, CacheStorage):
            return value
        return value.of_type(replace(value.type, shape=(pages, *value.type.shape[1:])))

    return replace(program, values={n: sized(v) for n, v in program.values.items()})


@dataclass(frozen=True, slots=True)
class _Block:
    """Bytes of the arena, taken until the op at index `last` has run."""

    offset: int
    size: int
    last: int


def _with_arena(program: DraftProgram, repeats: Repeats) -> DraftProgram:
    """Two rounds: where the last layers lie in the first one, all layers lie in the second."""
    last_use = _last_uses(program)
    offsets, limit = _offsets(program, last_use, {}, 0)
    _check_settled(program, repeats, offsets)
    settled = {_of_any_layer(name): offset for name, offset in offsets.items()}
    offsets, end = _offsets(program, last_use, settled, limit)
    _check_settled(program, repeats, offsets)
    values = dict(program.values)
    for node in program.nodes:
        if OPS[node.op].schema.kind is OpKind.VIEW:
            _alias(node, values)
            continue
        for name in node.outputs:
            if name in offsets:
                storage = ArenaStorage(offsets[name], contiguous_strides(values[name].type.shape))
                values[name] = values[name].stored(storage)
    return replace(program, values=values, arena_bytes=end)


def _check_settled(program: DraftProgram, repeats: Repeats, offsets: Mapping[str, int]) -> None:
    """A repeated group lies as the group before it, and so leaves the arena to the one behind it.

    Then each of its copies finds the arena as it did, and lies there, too.
    """
    for repeat in repeats:
        names = following(repeat)
        for node in chain(*alike(program.nodes, repeat)[:2]):
            for name in node.outputs:
                if offsets.get(name) != offsets.get(names[name]):
                    raise UnlikeLayersError


def _offsets(
    program: DraftProgram, last_use: Mapping[str, int], before: Mapping[str, int], limit: int
) -> tuple[dict[str, int], int]:
    """Where each value that owns storage lies, and the size of the arena.

    As where the same value of the layer before, or what `before` says of any layer's, where that is
    free and does not reach beyond `limit` or what is used anyway; else as low as it fits.
    """
    taken: list[_Block] = []
    known, offsets, end = dict(before), dict[str, int](), 0
    for index, node in enumerate(program.nodes):
        taken = [block for block in taken if block.last >= index]
        if OPS[node.op].schema.kind is OpKind.VIEW:
            continue
        for name in node.outputs:
            if program.values[name].is_bound:
                continue
            alike, size = _of_any_layer(name), _byte_size(program.values[name].type)
            offset = known.get(alike)
            if offset is None or offset + size > max(end, limit) or _meets(taken, offset, size):
                offset = _lowest(taken, size)
            known[alike] = offsets[name] = offset
            taken.append(_Block(offset, size, last_use[name]))
            end = max(end, offset + size)
    return offsets, end


def _last_uses(program: DraftProgram) -> dict[str, int]:
    """For each value that owns storage, the index of the last op that touches it or an alias.

    What more than two layers read (the rotary table) lives to the end, so that the last layers lie
    in the arena as the others do.
    """
    owner: dict[str, str] = {}
    last: dict[str, int] = {}
    layers: dict[str, set[int | None]] = {}
    end = len(program.nodes)
    for index, node in enumerate(program.nodes):
        for name in node.inputs:
            if name is not None:
                last[owner.get(name, name)] = index
                layers.setdefault(owner.get(name, name), set()).add(layer_of(node.module))
        view = OPS[node.op].schema.kind is OpKind.VIEW
        for name in node.outputs:
            source = node.inputs[0] if view else None
            owner[name] = name if source is None else owner.get(source, source)
            last[owner[name]] = index
    lasting = [name for name, readers in layers.items() if len(readers) > 2]
    last.update(dict.fromkeys((*lasting, owner.get(program.output, program.output)), end))
    return last


def _meets(taken: Sequence[_Block], offset: int, size: int) -> bool:
    return any(b.offset < offset + size and offset < b.offset + b.size for b in taken)


def _lowest(taken: Sequence[_Block], size: int) -> int:
    """The lowest gap between the taken blocks that holds `size` bytes."""
    offset = 0
    for block in sorted(taken, key=lambda b: b.offset):
        if block.offset - offset >= size:
            break
        offset = max(offset, block.offset + block.size)
    return offset


@lru_cache(maxsize=1 << 16)
def _of_any_layer(name: str) -> str:
    """The name without the number of its layer."""
    return _LAYER.sub("", name)


def _byte_size(type_: TensorType) -> int:
    size = type_.dtype.itemsize
    for extent in type_.shape:
        size *= extent
    return -(-size // ALIGNMENT) * ALIGNMENT


def _alias(node: Node, values: dict[str, DraftValue]) -> None:
    assert node.inputs[0] is not None
    source = values[node.inputs[0]]
    assert isinstance(source.storage, ArenaStorage), f"{node.op} of {source.name}, not in the arena"
    attributes = cast("Mapping[str, AttributeValue]", node.attributes)
    key = tuple(sorted(attributes.items()))
    for name, (strides, offset) in zip(
        node.outputs, _view(node.op, source.type.shape, source.storage.strides, key), strict=True
    ):
        start = source.storage.offset_bytes + offset * source.type.dtype.itemsize
        values[name] = values[name].stored(ArenaStorage(start, strides))


@lru_cache(maxsize=1024)
def _view(
    op: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    attributes: tuple[tuple[str, AttributeValue], ...],
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Strides and offset in elements of each output, as the reference's own alias has them."""
    source = torch.empty_strided(shape, strides, device="meta")
    result: Any = OPS[op].schema.reference(source, **dict(attributes))
    views = cast("tuple[Tensor, ...]", result if isinstance(result, tuple) else (result,))
    return tuple((tuple(v.stride()), int(v.storage_offset())) for v in views)
