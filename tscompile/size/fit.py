"""How much KV cache fits beside what a rank holds, and the fewest ranks that hold a deployment.

What communicators and kernels' shared areas take is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tscompile.communication.compiled import planned_request
from tscompile.communication.plan import CommunicationPlan
from tscompile.cost.topology import Topology, find_topology
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import CompileRequest, KvCacheRequest
from tscompile.models.annotations import CacheLayer
from tscompile.models.sizes import token_bytes
from tscompile.size.weights import Weighed, legal_sizes
from tsruntime.artifact.budget import SPARE_BYTES, draw_shapes, words_bytes

MOST_NODES = 16
"""Nodes up to which a cluster is searched."""

_FAMILY = re.compile(r"(h100|h200|b200|gb200)-")


@dataclass(frozen=True, slots=True)
class Room:
    """What fits into the memory that weights and arena leave on a rank, in whole pages.

    `context` is the longest sequence of which `max_batch` fit, `alone` that of which one does, both
    at most what the model allows; `batch` how many of `max_model_len` fit.
    """

    bytes_: int
    tokens: int
    context: int
    alone: int
    batch: int


@dataclass(frozen=True, slots=True)
class Need:
    """What a rank must hold for `batch` sequences of `length` tokens."""

    batch: int
    length: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """The group sizes of some ranks that hold least, and what a rank then holds.

    `arena` is None where weights and KV cache alone are too much, or where no sizes are legal
    (then `sizes` is None, too).
    """

    world: int
    topology: str
    sizes: ParallelSizes | None
    weights: int = 0
    kv: int = 0
    arena: int | None = None
    state: int = 0
    fits: bool = False


def state_bytes(request: CompileRequest) -> int:
    """Bytes of one rank for drawing tokens, the driver and graphs; nothing on a CPU.

    The same on any number of ranks.
    """
    if request.target.device != "cuda":
        return 0
    buckets, limits = request.buckets, request.limits
    shapes = [(count, count) for count in buckets.decode]
    shapes += [*buckets.extend, *buckets.all_logits]
    return SPARE_BYTES + words_bytes(
        draw_shapes(
            slots=limits.max_batch,
            longest=limits.max_model_len,
            vocab_size=request.model.vocab_size,
            tokens=max(tokens for tokens, _ in shapes),
            sequences=max(sequences for _, sequences in shapes),
        )
    )


def room(plan: CommunicationPlan, capacity: int, positions: int, state: int = 0) -> Room:
    """What fits beside the plan's weights, arena and `state` on ranks of `capacity` bytes."""
    memory, limits, pool = plan.memory, plan.limits, plan.pool
    left = max(0, capacity - state - sum(memory.values()) + memory["kv"])
    page = pool.page_size * pool.token_bytes
    pages = max(0, left // page - 1)  # one is the null page
    longest = -(-limits.max_model_len // pool.page_size)
    return Room(
        left,
        pages * pool.page_size,
        min(positions, pages // limits.max_batch * pool.page_size),
        min(positions, pages * pool.page_size),
        pages // longest,
    )


def pool_bytes(
    request: CompileRequest, caches: Sequence[CacheLayer], sizes: ParallelSizes, need: Need
) -> int:
    """Bytes of the pages that the needed sequences and the null page take on a rank."""
    page_size, dtype = request.kv.page_size, request.kv.dtype
    token = token_bytes(caches, sizes.attn_tp, dtype.itemsize)
    return page_size * token * (need.batch * -(-need.length // page_size) + 1)


def attempts(
    request: CompileRequest, weighed: Weighed, need: Need, capacity: int | None = None
) -> Iterator[Attempt]:
    """The counts of ranks in rising order, up to the first that holds the need.

    Of each count the sizes that hold least are tried, and compiled where weights and KV cache leave
    room, since only that tells the arena. `weighed` is the request's model; `capacity` stands in
    for the topology's.
    """
    for topology, world in worlds(request.target.topology):
        limit = capacity if capacity is not None else topology.capacity
        if limit is None:
            return
        attempt = _attempt(request, need, weighed, topology, world, limit)
        yield attempt
        if attempt.fits:
            return


def worlds(name: str) -> Iterator[tuple[Topology, int]]:
    """Counts of ranks on hardware of a topology's kind: within a node, then whole nodes."""
    node = find_topology(name)
    family = _FAMILY.match(name)
    if family is not None:
        inner = node.links[0].ranks
        node = find_topology("gb200-nvl72" if family[1] == "gb200" else f"{family[1]}-nvlink-8")
        yield from ((node, world) for world in range(1, inner + 1))
        for nodes in range(2, MOST_NODES + 1):
            yield find_topology(f"{family[1]}-ib-{nodes}x{inner}"), nodes * inner
    else:
        yield from ((node, world) for world in range(1, node.ranks + 1))


def _attempt(
    request: CompileRequest,
    need: Need,
    weighed: Weighed,
    topology: Topology,
    world: int,
    capacity: int,
) -> Attempt:
    def pool(sizes: ParallelSizes) -> int:
        return pool_bytes(request, weighed.graph.caches, sizes, need)

    held = [
        (weighed.rank_bytes(sizes) + pool(sizes), _preference(sizes), sizes)
        for sizes in legal_sizes(request.model, world)
    ]
    if not held:
        return Attempt(world, topology.name, None)
    least, _, sizes = min(held, key=lambda candidate: candidate[:2])
    kv, state = pool(sizes), state_bytes(request)
    attempt = Attempt(world, topology.name, sizes, least - kv, kv, state=state)
    if least + state > capacity:
        return attempt
    plan = planned_request(_asked(request, need, sizes, topology))
    memory = plan.memory
    return replace(
        attempt,
        weights=sum(memory.values()) - memory["kv"] - memory["arena"],
        arena=memory["arena"],
        fits=sum(memory.values()) + state <= capacity,
    )


def _preference(sizes: ParallelSizes) -> tuple[int, ...]:
    """Of sizes that hold alike: few attention replicas, and experts cut by number."""
    return (-sizes.attn_tp, -sizes.dense_tp, sizes.moe_tp, -sizes.moe_ep)


def _asked(
    request: CompileRequest, need: Need, sizes: ParallelSizes, topology: Topology
) -> CompileRequest:
    """The request on other ranks, with a pool of just what is needed."""
    pages = need.batch * -(-need.length // request.kv.page_size) + 1
    return replace(
        request,
        parallel=sizes,
        target=replace(request.target, topology=topology.name),
        kv=KvCacheRequest(request.kv.page_size, request.kv.dtype, pages=pages),
    )
