"""Sequences of one attention replica, and the batches that carry them through programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsruntime.artifact.schema import NULL_PAGE, Plan
from tsruntime.executor.batch import ForwardBatch, GroupBatch

Ints = NDArray[np.int32]


@dataclass(slots=True)
class Growing:
    """A sequence in a slot: how many tokens its cache holds, and its pages in order."""

    length: int = 0
    pages: list[int] = field(default_factory=list[int])


class Session:
    """One replica's slots and pages. Pages are handed out in a shuffled order, never freed alone.

    `reset` starts all sequences anew. Sequences are named by their slot.
    """

    def __init__(self, plan: Plan, random: np.random.Generator) -> None:
        self._plan, self._random = plan, random
        self.sequences: list[Growing] = []
        self.reset()

    def reset(self) -> None:
        """Forget every sequence and free every page."""
        pages = np.arange(NULL_PAGE + 1, self._plan.kv_cache.pages)
        self._free = [int(page) for page in self._random.permutation(pages)]
        self.sequences = [Growing() for _ in range(self._plan.limits.max_batch)]

    @property
    def free_pages(self) -> int:
        """Pages that no sequence holds."""
        return len(self._free)

    def fitting(self, slot: int, wanted: int, pages: int) -> tuple[int, int]:
        """Of `wanted` tokens how many a sequence takes with `pages` more pages; pages it needs."""
        sequence, page_size = self.sequences[slot], self._plan.kv_cache.page_size
        held = len(sequence.pages) * page_size
        longest = min(self._plan.limits.max_model_len, held + pages * page_size)
        count = max(min(wanted, longest - sequence.length), 0)
        return count, max(-(-(sequence.length + count - held) // page_size), 0)

    def batch(self, program: int, step: int, counts: Sequence[tuple[int, int]]) -> ForwardBatch:
        """Append to each (slot, tokens) that many random tokens, as one step of `program`."""
        starts = [self.sequences[slot].length for slot, _ in counts]
        deltas = [delta for slot, count in counts for delta in self._grow(slot, count)]
        positions = [
            start + i
            for start, (_, count) in zip(starts, counts, strict=True)
            for i in range(count)
        ]
        slots = [slot for slot, count in counts for _ in range(count)]
        mapping = [self._place(slot, p) for slot, p in zip(slots, positions, strict=True)]
        group = GroupBatch(
            slot_mapping=_ints(mapping),
            table_deltas=_ints(deltas).reshape(-1, 3),
            copies=_ints([]).reshape(-1, 2),
            zero_pages=_ints([]),
        )
        ids = self._random.integers(0, self._plan.vocab_size, len(positions))
        ends = np.cumsum([0, *(count for _, count in counts)])
        return ForwardBatch(
            step=step,
            program=program,
            slots=_ints([slot for slot, _ in counts]),
            seq_lens=_ints([self.sequences[slot].length for slot, _ in counts]),
            query_starts=_ints(ends),
            token_ids=_ints(ids),
            positions=_ints(positions),
            groups=tuple(group for _ in self._plan.kv_cache.groups),
        )

    def _grow(self, slot: int, count: int) -> list[tuple[int, int, int]]:
        """Lengthen a sequence; the (slot, index, page) of every page that it takes."""
        sequence, page_size = self.sequences[slot], self._plan.kv_cache.page_size
        sequence.length += count
        taken: list[tuple[int, int, int]] = []
        while len(sequence.pages) * page_size < sequence.length:
            sequence.pages.append(self._free.pop())
            taken.append((slot, len(sequence.pages) - 1, sequence.pages[-1]))
        return taken

    def _place(self, slot: int, position: int) -> int:
        page_size = self._plan.kv_cache.page_size
        return self.sequences[slot].pages[position // page_size] * page_size + position % page_size


def _ints(values: Sequence[object] | NDArray[np.int64]) -> Ints:
    return np.asarray(values, dtype=np.int32)
