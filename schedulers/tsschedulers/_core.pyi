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
    """One pool of KV pages. `pages` counts the null page 0, which is never handed out."""

    def __init__(self, name: str, pages: int, window: int | None = None) -> None: ...

class Config:
    """Sizes that never change after the build. ValueError names the first that is wrong.

    `tokens_per_step` is 1, or drafts + 1. An admission leaves `watermark` of each pool free while
    others run. `ageing` is the number of steps of waiting that one unit of priority is worth.
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

class Admission:
    """A request that this step gave a slot."""

    @property
    def handle(self) -> Handle: ...
    @property
    def slot(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...

class Plan:
    """One step. The arrays are views of buffers that live until the plan after the next one.

    Sequences stand in the order of their rows: first the decodes, then the prefill chunks.
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
    def free_pages(self) -> Sequence[int]: ...
    @property
    def cached_pages(self) -> Sequence[int]: ...
    @property
    def retractions(self) -> int: ...

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
    def transfer_done(self, ticket: int, ok: bool) -> None: ...
    def stats(self) -> Stats: ...
    def check_invariants(self) -> None:
        """RuntimeError with the invariant's name if one does not hold."""

__version__: Final[str]
