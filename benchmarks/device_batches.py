"""Steps whose batches no scheduler makes: decodes, a prompt's rows, both; pages in a row."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tsruntime.artifact.schema import Plan
from tsruntime.executor.batch import ForwardBatch, GroupBatch

NONE: Final = np.empty((0, 3), np.int32)
"""No change to a table of pages."""


def decode_batch(plan: Plan, index: int, context: int) -> ForwardBatch:
    """As many sequences as the program takes, each with `context` tokens, its pages its own."""
    return decodes(plan, index, np.full(plan.programs[index].sequences, context, np.int32))


def decodes(plan: Plan, index: int, lengths: NDArray[np.int32]) -> ForwardBatch:
    """A decode step of sequences with so many tokens each, and each its own pages."""
    size, count = plan.kv_cache.page_size, len(lengths)
    slots, pages = np.arange(count, dtype=np.int32), -(-lengths // size)
    ends, page = np.cumsum(pages), np.arange(int(pages.sum()))
    numbers = 1 + page % (plan.kv_cache.pages - 1)
    order = page - np.repeat(ends - pages, pages)
    deltas = np.stack([np.repeat(slots, pages), order, numbers], 1).astype(np.int32)
    place = numbers[ends - 1] * size + (lengths - 1) % size
    none = np.empty(0, np.int32)
    group = GroupBatch(place.astype(np.int32), deltas, none.reshape(0, 2), none)
    return ForwardBatch(
        0,
        index,
        slots,
        lengths,
        np.arange(count + 1, dtype=np.int32),
        (np.arange(count, dtype=np.int32) * 7919) % plan.vocab_size,
        (lengths - 1).astype(np.int32),
        (group,) * len(plan.kv_cache.groups),
    )


def chunk(plan: Plan, index: int, first: int, last: int) -> ForwardBatch:
    """Rows `first` to `last` of one sequence, whose pages follow one another."""
    size = plan.kv_cache.page_size
    rows = np.arange(first, last, dtype=np.int32)
    pages = -(-last // size)
    deltas = np.stack([np.zeros(pages), np.arange(pages), 1 + np.arange(pages)], 1).astype(np.int32)
    none = np.empty(0, np.int32)
    group = GroupBatch((size + rows).astype(np.int32), deltas, none.reshape(0, 2), none)
    return ForwardBatch(
        0,
        index,
        np.zeros(1, np.int32),
        np.array([last], np.int32),
        np.array([0, last - first], np.int32),
        (rows * 7919) % plan.vocab_size,
        rows,
        (group,) * len(plan.kv_cache.groups),
    )


def mixed_batch(plan: Plan, index: int, context: int) -> ForwardBatch:
    """A program's rows: all its sequences but one decode at `context`, the last one begins."""
    program, size = plan.programs[index], plan.kv_cache.page_size
    decodes = program.sequences - 1
    first = program.tokens - decodes
    news = np.array([1] * decodes + [first], np.int32)
    lengths = np.array([context] * decodes + [first], np.int32)
    slots, pages = np.arange(program.sequences, dtype=np.int32), -(-lengths // size)
    page, pages_before = np.arange(int(pages.sum())), np.cumsum(pages) - pages
    numbers = 1 + page % (plan.kv_cache.pages - 1)
    order = page - np.repeat(pages_before, pages)
    deltas = np.stack([np.repeat(slots, pages), order, numbers], 1).astype(np.int32)
    starts = np.concatenate([np.zeros(1), np.cumsum(news)]).astype(np.int32)
    positions = np.arange(program.tokens) + np.repeat(lengths - news - starts[:-1], news)
    places = numbers[np.repeat(pages_before, news) + positions // size] * size + positions % size
    none = np.empty(0, np.int32)
    group = GroupBatch(places.astype(np.int32), deltas, none.reshape(0, 2), none)
    return ForwardBatch(
        0,
        index,
        slots,
        lengths,
        starts,
        (np.arange(program.tokens, dtype=np.int32) * 7919) % plan.vocab_size,
        positions.astype(np.int32),
        (group,) * len(plan.kv_cache.groups),
    )
