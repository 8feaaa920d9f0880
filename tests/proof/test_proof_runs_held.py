"""Index runs against lists of indices; sums held against sets of summands."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tsruntime.artifact.proof.held import (
    EVERYTHING,
    NOTHING,
    Contracted,
    Held,
    contracted,
    joined,
    summed,
)
from tsruntime.artifact.proof.runs import (
    Overlap,
    Runs,
    clipped,
    divided,
    length,
    multiplied,
    shifted,
    taken,
    union,
    whole,
)
from tsruntime.artifact.proof.runs import joined as concatenated

RUNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=4).map(
    lambda pairs: concatenated([tuple((start, start + size) for start, size in pairs)])
)


def listed(runs: Runs) -> list[int]:
    return [index for start, stop in runs for index in range(start, stop)]


@given(RUNS, RUNS, st.integers(0, 6), st.integers(0, 6))
def test_runs_are_lists_of_indices(a: Runs, b: Runs, start: int, size: int) -> None:
    assert length(a) == len(listed(a))
    assert listed(concatenated([a, b])) == listed(a) + listed(b)
    assert listed(taken(a, start, size)) == listed(a)[start : start + size]
    assert listed(shifted(a, size)) == [i + size for i in listed(a)]
    assert listed(clipped(a, size)) == [i for i in listed(a) if i < size]
    assert listed(multiplied(a, 2)) == [j for i in listed(a) for j in (2 * i, 2 * i + 1)]
    assert divided(multiplied(a, 3), 3) == a


@given(RUNS, RUNS)
def test_union_is_of_disjoint_sets(a: Runs, b: Runs) -> None:
    together = listed(a) + listed(b)
    if len(set(together)) == len(together):
        assert listed(union([a, b])) == sorted(together)
    else:
        with pytest.raises(Overlap):
            union([a, b])


def test_a_cut_block_does_not_divide() -> None:
    assert divided(((2, 5),), 2) is None


ROWS, COLUMNS = 3, 4


def cell(row: int, column: int) -> Held:
    """One term of a sum over columns of a sum over rows."""
    inner = contracted(EVERYTHING, ((row, row + 1),), ROWS)
    return contracted(inner, ((column, column + 1),), COLUMNS)


CELLS = list(product(range(ROWS), range(COLUMNS)))


def atoms(held: Held) -> set[tuple[int, int]]:
    """The cells that are held, by the definition of a contraction."""
    if held is NOTHING:
        return set()
    if held is EVERYTHING:
        return set(CELLS)
    assert isinstance(held, Contracted)
    found: set[tuple[int, int]] = set()
    for part, runs in held.pairs:
        if part is EVERYTHING:
            rows = set(range(ROWS))
        else:
            assert isinstance(part, Contracted)
            rows = {row for _, inner in part.pairs for row in listed(inner)}
        found |= set(product(rows, listed(runs)))
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(CELLS), max_size=14), st.randoms(use_true_random=False))
def test_sums_are_sets_of_terms(chosen: list[tuple[int, int]], random: object) -> None:
    """Joined in any grouping; a term twice is refused."""
    held: Held = NOTHING
    taken_: set[tuple[int, int]] = set()
    for term in chosen:
        if term in taken_:
            with pytest.raises(Overlap):
                joined([held, cell(*term)])
            continue
        held = joined([held, cell(*term)])
        taken_.add(term)
        assert atoms(held) == taken_


@given(st.permutations(CELLS))
def test_all_terms_in_any_order_are_everything(order: list[tuple[int, int]]) -> None:
    assert joined([cell(*term) for term in order]) is EVERYTHING


@given(st.integers(1, 8), st.integers(1, 8))
def test_padding_adds_nothing(size: int, more: int) -> None:
    assert contracted(EVERYTHING, ((size, size + more),), size) is NOTHING
    assert contracted(EVERYTHING, whole(size + more), size) is EVERYTHING


def test_both_sides_of_a_sum_count() -> None:
    half = contracted(EVERYTHING, ((0, 2),), 4)
    rest = contracted(EVERYTHING, ((2, 4),), 4)
    first, second = summed(half, EVERYTHING), summed(rest, NOTHING)
    assert joined([first, second]) is EVERYTHING
    with pytest.raises(Overlap):
        joined([first, summed(rest, EVERYTHING)])
    with pytest.raises(Overlap):
        joined([EVERYTHING, second])


@given(RUNS)
def test_an_index_twice_is_refused(runs: Runs) -> None:
    assume(len(set(listed(runs))) < len(listed(runs)))
    with pytest.raises(Overlap):
        contracted(EVERYTHING, runs, 20)
