"""The words that a batch travels in: nothing is lost, and a damaged message is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tsruntime.executor.batch import (
    NO_PROGRAM,
    ForwardBatch,
    GroupBatch,
    Ints,
    decode,
    encode,
    idle_batch,
)

INT32 = st.integers(-(2**31), 2**31 - 1)


def ints(*shape: int) -> st.SearchStrategy[Ints]:
    return arrays.arrays(np.int32, shape, elements=INT32)


@st.composite
def batches(draw: st.DrawFn) -> ForwardBatch:
    sequences, tokens = draw(st.integers(0, 5)), draw(st.integers(0, 40))
    groups = [
        GroupBatch(
            draw(ints(tokens)),
            draw(ints(draw(st.integers(0, 4)), 3)),
            draw(ints(draw(st.integers(0, 4)), 2)),
            draw(ints(draw(st.integers(0, 4)))),
            draw(ints(draw(st.integers(0, 4)), 2)),
            draw(ints(draw(st.integers(0, 4)), 2)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    return ForwardBatch(
        draw(st.integers(0, 2**62)),
        draw(st.integers(NO_PROGRAM, 1000)),
        draw(ints(sequences)),
        draw(ints(sequences)),
        draw(ints(sequences + 1)),
        draw(ints(tokens)),
        draw(ints(tokens)),
        tuple(groups),
    )


def same(a: ForwardBatch, b: ForwardBatch) -> bool:
    arrays_of = (
        [x.slots, x.seq_lens, x.query_starts, x.token_ids, x.positions]
        + [y for g in x.groups for y in (g.slot_mapping, g.table_deltas, g.copies, g.zero_pages)]
        + [y for g in x.groups for y in (g.stores, g.loads)]
        for x in (a, b)
    )
    return (a.step, a.program, len(a.groups)) == (b.step, b.program, len(b.groups)) and all(
        p.dtype == q.dtype and p.shape == q.shape and np.array_equal(p, q)
        for p, q in zip(*arrays_of, strict=True)
    )


@given(batches())
def test_a_batch_survives_its_trip(batch: ForwardBatch) -> None:
    words = encode(batch)
    assert words.dtype == np.int32
    assert same(decode(words), batch)


@settings(max_examples=50)
@given(batches(), st.data())
def test_a_message_cut_short_is_refused(batch: ForwardBatch, data: st.DataObject) -> None:
    words = encode(batch)
    with pytest.raises(ValueError, match="words"):
        decode(words[: data.draw(st.integers(0, len(words) - 1))])


@settings(max_examples=50)
@given(batches())
def test_a_message_too_long_is_refused(batch: ForwardBatch) -> None:
    with pytest.raises(ValueError, match="came as"):
        decode(np.append(encode(batch), np.int32(0)))


def test_an_idle_batch_has_no_rows() -> None:
    batch = idle_batch(7, 2)
    assert (batch.program, batch.num_sequences, batch.num_tokens) == (7, 0, 0)
    assert same(decode(encode(batch)), batch)
