"""The scheduler's side of a plan: its configuration, and its steps as batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tsruntime.artifact.schema import KvCache, Plan
from tsruntime.engine.messages import PagePool
from tsruntime.executor.batch import NO_PROGRAM, Draws, ForwardBatch, GroupBatch, Ints
from tsruntime.executor.choice import ProgramChoice
from tsschedulers._core import CacheGroupConfig, Config, GroupPlan
from tsschedulers._core import Plan as StepPlan


def scheduler_config(plan: Plan) -> Config:
    """The scheduler's sizes, all from the artifact."""
    limits, kv = plan.limits, plan.kv_cache
    return Config(
        page_size=kv.page_size,
        max_batch=limits.max_batch,
        max_model_len=limits.max_model_len,
        token_budget=limits.token_budget,
        groups=[CacheGroupConfig(g.name, kv.pages, g.window) for g in kv.groups],
        host_pages=kv.host_pages,
    )


def forward_batch(
    step: StepPlan, choice: ProgramChoice, sampled: Ints | None, draws: Draws
) -> ForwardBatch:
    """The step as every rank runs it, with its program chosen; arrays are the step's own.

    `sampled` [max_batch] holds the last token of each slot: what the step did not know of its
    tokens yet when it was planned; with None those stay below 0. An empty step
    has no program and only moves pages.
    """
    return ForwardBatch(
        step.step,
        NO_PROGRAM if step.empty else choice.choose(step.num_tokens, step.num_sequences),
        step.slots,
        step.seq_lens,
        step.query_starts,
        step.token_ids if sampled is None else _known(step, sampled),
        step.positions,
        tuple(map(_group, step.groups)),
        draws,
    )


def tickets(step: StepPlan) -> tuple[int, ...]:
    """The transfers that the step begins, over all groups."""
    parts = [part for group in step.groups for part in (group.stores, group.loads) if len(part)]
    return tuple(dict.fromkeys(ticket for part in parts for ticket in part[:, 0].tolist()))


def _known(step: StepPlan, sampled: Ints) -> Ints:
    """[tokens]; only decodes have unknown tokens, and the i-th decode has row i."""
    decodes = step.token_ids[: step.num_decodes]
    if not (decodes < 0).any():
        return step.token_ids
    known = step.token_ids.copy()
    known[: len(decodes)] = np.where(decodes < 0, sampled[step.slots[: len(decodes)]], decodes)
    return known


def _group(part: GroupPlan) -> GroupBatch:
    return GroupBatch(
        part.slot_mapping,
        part.table_deltas,
        part.copies,
        part.zero_pages,
        part.stores[:, 1:],
        part.loads[:, 1:],
    )


def page_pools(
    kv: KvCache, total: int, free: Sequence[int], cached: Sequence[int]
) -> tuple[PagePool, ...]:
    """A pool of `total` pages for each number in `free` and `cached`, by the groups' order."""
    counts = zip(kv.groups, free, cached, strict=False)  # no numbers: no such pools
    return tuple(PagePool(group.name, total, f, c) for group, f, c in counts)


def prompt_array(tokens: Sequence[int], vocab_size: int) -> NDArray[np.int32]:
    """A prompt as int32 [tokens]; ValueError if a token is outside of the vocabulary."""
    array = np.asarray(tokens, np.int64)
    outside = array[(array < 0) | (array >= vocab_size)]
    if len(outside):
        raise ValueError(
            f"token id {outside[0]} is outside of the vocabulary: 0 to {vocab_size - 1}"
        )
    return array.astype(np.int32)
