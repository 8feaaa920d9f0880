"""Run without the collector of cycles, which takes a third of a compiler's time and finds none."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Leave the collector off until the end; drafts are trees, freed by their last reader.

    What lives then counts as old: the collector would otherwise begin by going through all of it.
    """
    enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        if not frozen:  # else it would give back what others keep from the collector
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()
