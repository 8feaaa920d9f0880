"""Choose a strategy for every op and mark the reshards between them: see `tscompile.search`."""

from __future__ import annotations

from tscompile.cost.topology import find_topology
from tscompile.ir.draft import Draft
from tscompile.ir.request import KvCacheRequest, PolicyName
from tscompile.ir.sharing import shared
from tscompile.passes.check_annotations import check_annotations
from tscompile.passes.localize import local_cache
from tscompile.passes.plan_memory import page_bytes
from tscompile.search.drafts import place
from tscompile.search.workers import affordable
from tsruntime.artifact.budget import SPARE_BYTES, draw_shapes, words_bytes


def propagate_placements(draft: Draft, policy: PolicyName, kv: KvCacheRequest) -> Draft:
    """Give every value its placements, and put a `reshard` node for every step between two.

    Raises AnnotationError where a boundary's annotation contradicts the body, NoStrategyError
    where nothing fits the bound weights, TopologyError for a topology that is not known,
    DeviceMemoryError where no layout of the weights fits beside the KV cache, and LostWorkerError
    where a process that searched was killed.
    """
    topology = find_topology(draft.target.topology)
    check_annotations(draft)
    work = sum(len(program.nodes) for program in draft.programs) * len(draft.mesh.axes)
    workers = affordable(len(draft.programs), work)
    return shared(place(draft, topology, policy, bytes_beside_weights(draft, kv), workers))


def bytes_beside_weights(draft: Draft, kv: KvCacheRequest) -> int:
    """Bytes of one rank that are known before anything is placed: all but weights and arena."""
    return _cache_bytes(draft, kv) + _state_bytes(draft)


def _cache_bytes(draft: Draft, kv: KvCacheRequest) -> int:
    """Bytes of the KV pool on one rank."""
    if kv.memory is not None:
        return kv.memory
    return (kv.pages or 0) * page_bytes(local_cache(draft))


def _state_bytes(draft: Draft) -> int:
    """What requests are drawn with, and the driver; on a CPU nothing worth counting."""
    if draft.target.device != "cuda":
        return 0
    return SPARE_BYTES + words_bytes(
        draw_shapes(
            slots=draft.limits.max_batch,
            longest=draft.limits.max_model_len,
            vocab_size=draft.vocab_size,
            tokens=max(program.tokens for program in draft.programs),
            sequences=max(program.sequences for program in draft.programs),
        )
    )
