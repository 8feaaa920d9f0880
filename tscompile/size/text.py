"""`tscompile size`: the memory of a rank, what fits, and the fewest ranks, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tscompile.communication.plan import WEIGHT_KINDS, CommunicationPlan
from tscompile.communication.units import bytes_text
from tscompile.ir.mesh import ParallelSizes, replicas_of
from tscompile.size.fit import Attempt, Need, Room


def held_lines(plan: CommunicationPlan, capacity: int | None, state: int = 0) -> Iterator[str]:
    """What a rank holds, by what takes it."""
    memory, pool = plan.memory, plan.pool
    of = "" if capacity is None else f" of {bytes_text(capacity)}"
    yield (
        f"{plan.name}: {plan.mesh.world} ranks of {plan.target.topology}; a rank holds "
        f"{bytes_text(sum(memory.values()) + state)}{of}"
    )
    for kind in WEIGHT_KINDS:
        if memory.get(kind):
            yield f"  {kind:20} {bytes_text(memory[kind]):>10}"
    pages = f"{pool.pages:,} pages of {pool.page_size} tokens, {bytes_text(pool.token_bytes)} each"
    yield f"  {'KV cache':20} {bytes_text(memory['kv']):>10}  {pages} token"
    yield f"  {'arena':20} {bytes_text(memory['arena']):>10}  of the largest program"
    if state:
        yield f"  {'state':20} {bytes_text(state):>10}  of draws, driver and graphs"
    if pool.host_pages:
        host = pool.host_pages * pool.page_size * pool.token_bytes
        yield f"  {'in host memory':20} {bytes_text(host):>10}  {pool.host_pages:,} pages"


def room_lines(plan: CommunicationPlan, room: Room, positions: int) -> Iterator[str]:
    """What fits where all that is left becomes KV cache."""
    limits, pool = plan.limits, plan.pool
    replicas = replicas_of(plan.mesh)
    each = f" on each of {replicas} attention replicas" if replicas > 1 else ""
    wanted = limits.max_batch * -(-limits.max_model_len // pool.page_size) * pool.page_size
    full = bytes_text((wanted + pool.page_size) * pool.token_bytes)
    yield (
        f"limits in full ({limits.max_batch} sequences of {limits.max_model_len:,} tokens{each}) "
        f"need {full} of KV cache"
    )
    yield f"{bytes_text(room.bytes_)} are left for it, {room.tokens:,} tokens:"
    bound = " (all that the model allows)" if room.context == positions else ""
    yield f"  largest context    {room.context:,} tokens for {limits.max_batch} sequences{bound}"
    bound = " (all that the model allows)" if room.alone == positions else ""
    yield f"                     {room.alone:,} tokens for one{bound}"
    yield f"  largest batch      {room.batch:,} sequences of {limits.max_model_len:,} tokens"


def count_lines(need: Need, tried: Sequence[Attempt]) -> Iterator[str]:
    """The smallest count of ranks for a need, and why each smaller one does not do."""
    sequences = "sequence" if need.batch == 1 else "sequences"
    yield f"smallest GPU count for {need.batch} {sequences} of {need.length:,} tokens:"
    for attempt in tried:
        yield f"  {attempt.world:>3}  {_attempt(attempt)}"
    if not tried or not tried[-1].fits:
        yield "  no count that was tried holds it"


def _attempt(attempt: Attempt) -> str:
    if attempt.sizes is None:
        return "no legal sizes: see `parallel` in docs/recipe.md"
    parts = f"weights {bytes_text(attempt.weights)}, KV cache {bytes_text(attempt.kv)}"
    if attempt.arena is not None:
        parts += f", arena {bytes_text(attempt.arena)}"
    if attempt.state:
        parts += f", state {bytes_text(attempt.state)}"
    total = bytes_text(attempt.weights + attempt.kv + (attempt.arena or 0) + attempt.state)
    verdict = f"fits {attempt.topology}" if attempt.fits else "too much"
    return f"{total} a rank, {verdict}: {parts} ({_sizes(attempt.sizes)})"


def _sizes(sizes: ParallelSizes) -> str:
    experts = sizes.moe_tp * sizes.moe_ep
    moe = f", moe_tp {sizes.moe_tp}, moe_ep {sizes.moe_ep}" if experts > 1 else ""
    return f"attn_tp {sizes.attn_tp}, dense_tp {sizes.dense_tp}{moe}"
