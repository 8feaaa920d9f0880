"""The scheduler's C++ extension, as Python sees it."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

class Handle:
    """Names one request: a place and its generation, so that a stale handle is told apart."""

    @property
    def index(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class CacheGroupConfig:
    """One pool of KV pages. `pages` counts the null page 0, which is never handed out.

    `window` is the number of tokens that a query reads, its own included; None reads all.
    With `zero_pages` each new page is listed in `GroupPlan.zero_pages` before its first use.
    """

    def __init__(
        self, name: str, pages: int, window: int | None = None, zero_pages: bool = False
    ) -> None: ...

class Config:
    """Sizes that never change after the build. ValueError names the first that is wrong.

    `tokens_per_step` is 1, or drafts + 1. An admission leaves `watermark` of each pool free while
    others run. `ageing` is the number of steps of waiting that one unit of priority is worth.
    `host_pages` is the number of pages in host memory, of each group, for retracted requests.
    `prefix_hash_bits` below 32 makes prefixes collide, for tests.
    """

    def __init__(
        self,
        *,
        page_size: int,
        max_batch: int,
        max_model_len: int,
        token_budget: int,
        groups: Sequence[CacheGroupConfig],
        tokens_per_step: int = 1,
        host_pages: int = 0,
        prefix_cache: bool = True,
        watermark: float = 0.01,
        ageing: int = 64,
        prefix_hash_bits: int = 32,
    ) -> None: ...

class GroupPlan:
    """What one step does to one cache group."""

    @property
    def slot_mapping(self) -> NDArray[np.int32]:
        """[tokens] page * page_size + offset of each new token."""
    @property
    def table_deltas(self) -> NDArray[np.int32]:
        """[n, 3] rows (slot, index, page) to write into the slots' page tables before the step."""
    @property
    def copies(self) -> NDArray[np.int32]:
        """[n, 2] rows (from page, to page) to copy before the step."""
    @property
    def zero_pages(self) -> NDArray[np.int32]:
        """[n] pages to fill with zeros before the step."""
    @property
    def stores(self) -> NDArray[np.int32]:
        """[n, 3] rows (ticket, page, host page) to copy to the host after the steps in flight.

        They stand in empty plans too. Each ticket is acknowledged once, by `transfer_done`.
        """
    @property
    def loads(self) -> NDArray[np.int32]:
        """[n, 3] rows (ticket, host page, page) to copy from the host; as `stores`."""

class Admission:
    """A request that this plan gave a slot. `cached_tokens` need not be computed.

    One whose prefix is loaded from the host first runs once the transfer is acknowledged; if that
    fails it is admitted again, and nothing tells of its losing this slot.
    """

    @property
    def handle(self) -> Handle: ...
    @property
    def slot(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...

class Plan:
    """One step. The arrays are views, which stay valid and unchanged while they are held.

    Sequences stand in the order of their rows: first the decodes, then the prefill chunks. An
    empty plan may still retract, admit (with loads), store and load.
    """

    @property
    def step(self) -> int:
        """Counts from 1; 0 for an empty plan, which is not committed."""
    @property
    def empty(self) -> bool: ...
    @property
    def reason(self) -> str:
        """Why an empty plan is empty: `idle`, `in_flight` or `waiting_transfer`; else ``."""
    @property
    def num_sequences(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_decodes(self) -> int:
        """The first `num_decodes` sequences are decodes (one token each)."""
    @property
    def slots(self) -> NDArray[np.int32]:
        """[sequences] device slot, 0 to max_batch - 1."""
    @property
    def query_starts(self) -> NDArray[np.int32]:
        """[sequences + 1] prefix sums of the rows a sequence has in this step."""
    @property
    def seq_lens(self) -> NDArray[np.int32]:
        """[sequences] tokens in the cache once this step has run."""
    @property
    def positions(self) -> NDArray[np.int32]:
        """[tokens]"""
    @property
    def token_ids(self) -> NDArray[np.int32]:
        """[tokens]; -1 where the token is still being sampled by a step in flight."""
    @property
    def samples(self) -> NDArray[np.int32]:
        """[sequences] 1 where a token is to be sampled (a decode, or the last prefill chunk)."""
    @property
    def groups(self) -> Sequence[GroupPlan]: ...
    @property
    def admitted(self) -> Sequence[Admission]: ...
    @property
    def retracted(self) -> Sequence[Handle]:
        """Requests that lost their slot and will be admitted again."""

class Stats:
    """Counters; all are kept incrementally."""

    @property
    def waiting(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def free_pages(self) -> Sequence[int]:
        """A number a group."""
    @property
    def cached_pages(self) -> Sequence[int]:
        """A number a group: pages that only the prefix cache refers to."""
    @property
    def host_free_pages(self) -> Sequence[int]:
        """A number a group; none without host pages."""
    @property
    def host_cached_pages(self) -> Sequence[int]:
        """A number a group: host pages that no transfer holds; none without host pages."""
    @property
    def retractions(self) -> int: ...
    @property
    def work(self) -> int:
        """Elementary operations so far: rows, pages, cache nodes and requests visited."""

class Scheduler:
    """Decides what each step computes. Not thread-safe: one thread owns it."""

    def __init__(self, config: Config) -> None: ...
    def submit(
        self,
        tokens: NDArray[np.int32] | Sequence[int],
        max_new_tokens: int,
        *,
        priority: int = 0,
        salt: int = 0,
    ) -> Handle:
        """Queue a request. ValueError if it could never run, naming the limit and both values.

        A lower `priority` runs earlier; requests of different `salt` share no cached page.
        """
    def fork(self, parent: Handle, max_new_tokens: int) -> Handle:
        """Queue a request that goes on from the parent's committed tokens (parallel samples).

        It shares the parent's complete pages and copies the last one. ValueError as `submit`, and
        if the parent is not live.
        """
    def plan(self) -> Plan: ...
    def commit(
        self,
        step: int,
        slots: NDArray[np.int32],
        tokens: NDArray[np.int32],
        finished: NDArray[np.bool_],
    ) -> None:
        """Apply the sampled tokens of one step, in the order that steps were planned.

        One entry for each sequence of the plan with `samples` 1 that was not aborted since (an
        aborted one may be left out). `finished` ends a request; reaching max_new_tokens ends it
        too. ValueError on anything inconsistent, and then nothing has changed.
        """
    def abort(self, handle: Handle) -> bool:
        """Forget a request; False if the handle is stale or finished."""
    def transfer_done(self, ticket: int, ok: bool) -> None:
        """Acknowledge a transfer. ValueError if the ticket is not outstanding."""
    def stats(self) -> Stats: ...
    def check_invariants(self) -> None:
        """RuntimeError with the invariant's name if one does not hold."""

__version__: Final[str]
