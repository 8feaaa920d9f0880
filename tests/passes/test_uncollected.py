"""Without the collector of cycles: it neither runs inside, nor through all that lives behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tscompile.passes.uncollected import uncollected


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations that were collected so far."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def _many() -> list[list[int]]:
    return [[number] for number in range(100_000)]


def test_nothing_is_collected_inside_nor_right_behind(collections: list[int]) -> None:
    gc.collect()
    collections.clear()
    with uncollected():
        kept = _many()
    young = [[number] for number in range(10)]
    assert collections == []
    assert gc.isenabled()
    assert len(kept) + len(young) == 100_010


def test_the_collector_runs_as_ever_behind_it(collections: list[int]) -> None:
    with uncollected():
        _many()
    kept = _many()
    assert collections
    assert kept


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_others_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with uncollected():
            pass
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()
