"""Several ranks in one process: each on a thread of its own, meeting over gloo."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from torch.distributed import (
    HashStore,  # pyright: ignore[reportPrivateImportUsage]
    Store,  # pyright: ignore[reportPrivateImportUsage]
)

T = TypeVar("T")

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
TIMEOUT = timedelta(seconds=30)


def on_ranks(world: int, work: Callable[[int, Store], T]) -> list[T]:
    """What `work(rank, store)` returns on each rank, by rank; the first error is raised."""
    store = HashStore()
    with ThreadPoolExecutor(world) as pool:
        futures = [pool.submit(work, rank, store) for rank in range(world)]
        return [future.result() for future in futures]
