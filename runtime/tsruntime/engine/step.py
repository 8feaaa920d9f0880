"""The scheduler's side of a plan: its configuration, and its steps as batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import ForwardBatch, GroupBatch
from tsruntime.executor.choice import ProgramChoice
from tsschedulers._core import CacheGroupConfig, Config
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
    )


def forward_batch(step: StepPlan, choice: ProgramChoice) -> ForwardBatch:
    """The step as every rank runs it, with its program chosen; arrays are the step's own."""
    return ForwardBatch(
        step.step,
        choice.choose(step.num_tokens, step.num_sequences),
        step.slots,
        step.seq_lens,
        step.query_starts,
        step.token_ids,
        step.positions,
        tuple(
            GroupBatch(g.slot_mapping, g.table_deltas, g.copies, g.zero_pages) for g in step.groups
        ),
    )


def prompt_array(tokens: Sequence[int], vocab_size: int) -> NDArray[np.int32]:
    """A prompt as int32 [tokens]; ValueError if a token is outside of the vocabulary."""
    array = np.asarray(tokens, np.int64)
    outside = array[(array < 0) | (array >= vocab_size)]
    if len(outside):
        raise ValueError(
            f"token id {outside[0]} is outside of the vocabulary: 0 to {vocab_size - 1}"
        )
    return array.astype(np.int32)
