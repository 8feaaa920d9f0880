"""Decode steps for executors on a GPU, and what artifacts for it are built for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsruntime.executor.batch import ForwardBatch, GroupBatch
from tsruntime.executor.device import DeviceExecutor

CUDA = {"device": "cuda", "arch": "sm_90", "topology": "h200-nvlink-8"}


def batch_of(executor: DeviceExecutor, program: int, lengths: Sequence[int]) -> ForwardBatch:
    """The last row of sequences of `lengths`, of the pages that follow one another."""
    size = executor.plan.kv_cache.page_size
    slots = np.arange(len(lengths), dtype=np.int32)
    deltas: list[tuple[int, int, int]] = []
    places: list[int] = []
    page = 1
    for slot, length in enumerate(lengths):
        deltas += [(slot, index, page + index) for index in range(-(-length // size))]
        places.append((page + (length - 1) // size) * size + (length - 1) % size)
        page += -(-length // size)
    none = np.empty(0, np.int32)
    group = GroupBatch(
        np.array(places, np.int32), np.array(deltas, np.int32), none.reshape(0, 2), none
    )
    last = np.array(lengths, np.int32)
    starts = np.arange(len(lengths) + 1, dtype=np.int32)
    return ForwardBatch(0, program, slots, last, starts, slots + 3, last - 1, (group,))
