"""Batches for the hand-written plan, without a scheduler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tsruntime.artifact.schema import Plan
from tsruntime.artifact.weights import WeightStore
from tsruntime.executor.batch import ForwardBatch, GroupBatch
from tsruntime.executor.choice import ProgramChoice
from tsruntime.executor.collectives import LocalCommunicator
from tsruntime.executor.executor import Executor

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
OTHER = [23, 0, 7]


def make_executor(plan: Plan) -> Executor:
    """The only rank of a world of one, with generated weights."""
    return Executor(plan, 0, WeightStore(Path("unused"), plan, 0), lambda _: LocalCommunicator())


class Rows:
    """Builds batches for sequences that keep pages of their own, slot by slot."""

    def __init__(self, plan: Plan) -> None:
        self._size = plan.kv_cache.page_size
        self._per_slot = (plan.kv_cache.pages - 1) // plan.limits.max_batch
        self._known: dict[int, int] = {}
        self._choice = ProgramChoice(plan.programs)

    def batch(self, chunks: list[tuple[int, int, list[int]]], program: int = -1) -> ForwardBatch:
        """`chunks` of (slot, tokens before, new tokens); the smallest program unless given."""
        deltas, slots = list[tuple[int, int, int]](), list[int]()
        for slot, start, tokens in chunks:
            end = start + len(tokens)
            for index in range(self._known.get(slot, 0), -(-end // self._size)):
                deltas.append((slot, index, self._page(slot, index)))
                self._known[slot] = index + 1
            slots += [
                self._page(slot, p // self._size) * self._size + p % self._size
                for p in range(start, end)
            ]
        counts = [len(tokens) for _, _, tokens in chunks]
        if program < 0:
            program = self._choice.choose(sum(counts), len(chunks))
        pages = np.empty(0, np.int32)
        group = GroupBatch(
            np.array(slots, np.int32),
            np.array(deltas, np.int32).reshape(-1, 3),
            pages.reshape(0, 2),
            pages,
        )
        return ForwardBatch(
            0,
            program,
            np.array([slot for slot, _, _ in chunks], np.int32),
            np.array([start + len(tokens) for _, start, tokens in chunks], np.int32),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            np.array([t for _, _, tokens in chunks for t in tokens], np.int32),
            np.array([s + i for _, s, ts in chunks for i in range(len(ts))], np.int32),
            (group,),
        )

    def _page(self, slot: int, index: int) -> int:
        """Pages of a slot lie backwards, so that order in the pool proves nothing."""
        return 1 + slot * self._per_slot + (self._per_slot - 1 - index)


def close(logits: Tensor, expected: NDArray[np.float64]) -> bool:
    """Whether one row of logits is the expected one up to float32 rounding; NaN is not."""
    return bool(np.abs(logits.double().numpy() - expected).max() < 1e-5 * np.abs(expected).max())
