"""One step's work as frozen arrays, and the int32 words in which it travels to the other ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tskernels.ops.sampling.words import ROW_WORDS, DrawKind

Ints: TypeAlias = NDArray[np.int32]

_FIXED = 11
"""Words before the groups' counts: step (low, high), program + 1, sequences, tokens, five of how
tokens are drawn (the kind's number, rows, masks, words of a mask, words of pasts), groups."""
_KINDS: Final = tuple(DrawKind)
_PER_GROUP = 5
"""Counts a group has in the header: deltas, copies, zero pages, stores, loads."""
_WORD = 1 << 32

NO_PROGRAM: Final = -1
"""The program of a batch that only moves pages."""


def _no_pairs() -> Ints:
    return np.empty((0, 2), np.int32)


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """One cache group's part of a step; all int32.

    `slot_mapping` [tokens] is page * page_size + offset of each row. Before the program runs,
    `stores` [n, 2] rows (page, host page) are copied to the host and `loads` [n, 2] rows (host
    page, page) from it, `table_deltas` [n, 3] rows (slot, index, page) enter the page tables,
    `copies` [n, 2] rows (from page, to page) are copied and `zero_pages` [n] are cleared, in that
    order.
    """

    slot_mapping: Ints
    table_deltas: Ints
    copies: Ints
    zero_pages: Ints
    stores: Ints = field(default_factory=_no_pairs)
    loads: Ints = field(default_factory=_no_pairs)


@dataclass(frozen=True, slots=True)
class Draws:
    """How a device draws the step's tokens; all int32, see `tskernels.ops.sampling.words`.

    `pasts` [n] rebuild what is known of slots, one after another, before the program runs. Of a
    `kind` with rules of each row, `rows` [sequences, ROW_WORDS] are those, and `masks` [n, words]
    belong to the sequences `masked` [n].
    """

    kind: DrawKind
    rows: Ints
    pasts: Ints
    masked: Ints
    masks: Ints


def greedy_draws() -> Draws:
    """Every row takes its largest logit."""
    none = np.empty(0, np.int32)
    return Draws(DrawKind.GREEDY, none.reshape(0, ROW_WORDS), none, none, none.reshape(0, 0))


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step, as rank 0 chose it; all int32, without padding: each rank pads to the program.

    `program` is the index in the plan's programs, or NO_PROGRAM. `slots`, `seq_lens` [sequences]
    and `query_starts` [sequences + 1] describe the sequences in the order of their rows,
    `token_ids` and `positions` [tokens] the rows. `groups` stands in the order of the plan's cache
    groups. `draws` is for executors that draw tokens themselves.
    """

    step: int
    program: int
    slots: Ints
    seq_lens: Ints
    query_starts: Ints
    token_ids: Ints
    positions: Ints
    groups: tuple[GroupBatch, ...]
    draws: Draws = field(default_factory=greedy_draws)

    @property
    def num_sequences(self) -> int:
        """Sequences with at least one row."""
        return len(self.slots)

    @property
    def num_tokens(self) -> int:
        """Rows that are not padding."""
        return len(self.token_ids)


def idle_batch(program: int, groups: int) -> ForwardBatch:
    """A batch without sequences: `program` runs on padding alone, over `groups` cache groups."""
    none = np.empty(0, np.int32)
    empty = GroupBatch(none, none.reshape(0, 3), none.reshape(0, 2), none)
    starts = np.zeros(1, np.int32)
    return ForwardBatch(0, program, none, none, starts, none, none, (empty,) * groups)


def encode(batch: ForwardBatch) -> Ints:
    """The batch as one int32 array: counts first, then every array in the order of the fields."""
    groups, draws = batch.groups, batch.draws
    header = [
        batch.step % _WORD,
        batch.step // _WORD,
        batch.program + 1,
        batch.num_sequences,
        batch.num_tokens,
        _KINDS.index(draws.kind),
        len(draws.rows),
        *draws.masks.shape,
        len(draws.pasts),
        len(groups),
    ]
    for group in groups:
        header += [len(group.table_deltas), len(group.copies), len(group.zero_pages)]
        header += [len(group.stores), len(group.loads)]
    parts = [
        np.array(header, np.uint32).view(np.int32),
        batch.slots,
        batch.seq_lens,
        batch.query_starts,
        batch.token_ids,
        batch.positions,
        draws.rows.ravel(),
        draws.masked,
        draws.masks.ravel(),
        draws.pasts,
    ]
    for group in groups:
        parts.append(group.slot_mapping)
        parts += [group.table_deltas.ravel(), group.copies.ravel(), group.zero_pages]
        parts += [group.stores.ravel(), group.loads.ravel()]
    return np.concatenate(parts)


def decode(words: Ints) -> ForwardBatch:
    """The batch that `encode` made `words` of; its arrays are views of `words`.

    ValueError if the counts do not add up to the length of `words`.
    """
    step_low, step_high, program, sequences, tokens, *drawn, count = _header(words)
    counts = words[_FIXED : _FIXED + _PER_GROUP * count].reshape(-1, _PER_GROUP).tolist()
    reader = _Reader(words, _FIXED + _PER_GROUP * count)
    slots, seq_lens = reader.take(sequences), reader.take(sequences)
    query_starts = reader.take(sequences + 1)
    token_ids, positions = reader.take(tokens), reader.take(tokens)
    draws = _draws(reader, *drawn)
    groups = tuple(
        GroupBatch(
            reader.take(tokens),
            reader.take(3 * deltas).reshape(-1, 3),
            reader.take(2 * copies).reshape(-1, 2),
            reader.take(zeros),
            reader.take(2 * stores).reshape(-1, 2),
            reader.take(2 * loads).reshape(-1, 2),
        )
        for deltas, copies, zeros, stores, loads in counts
    )
    reader.finish()
    step = step_low + step_high * _WORD
    return ForwardBatch(
        step, program - 1, slots, seq_lens, query_starts, token_ids, positions, groups, draws
    )


def _draws(reader: _Reader, kind: int, rows: int, masks: int, width: int, pasts: int) -> Draws:
    if kind >= len(_KINDS):
        raise ValueError(f"there is no kind {kind} of draws")
    own, masked = reader.take(rows * ROW_WORDS).reshape(-1, ROW_WORDS), reader.take(masks)
    allowed = reader.take(masks * width).reshape(masks, width)
    return Draws(_KINDS[kind], own, reader.take(pasts), masked, allowed)


def _header(words: Ints) -> list[int]:
    if len(words) < _FIXED:
        raise ValueError(f"a batch has at least {_FIXED} words, this one has {len(words)}")
    header: list[int] = words[:_FIXED].view(np.uint32).tolist()
    if len(words) < _FIXED + _PER_GROUP * header[-1]:
        raise ValueError(f"{len(words)} words cannot hold the counts of {header[-1]} groups")
    return header


class _Reader:
    """Cuts consecutive arrays from a run of words."""

    def __init__(self, words: Ints, start: int) -> None:
        self._words = words
        self._at = start

    def take(self, count: int) -> Ints:
        end = self._at + count
        if not self._at <= end <= len(self._words):
            raise ValueError(f"a batch of {len(self._words)} words is cut short at word {end}")
        part = self._words[self._at : end]
        self._at = end
        return part

    def finish(self) -> None:
        if self._at != len(self._words):
            raise ValueError(f"a batch of {self._at} words came as {len(self._words)}")
