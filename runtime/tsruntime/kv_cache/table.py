"""Page tables of the device slots, kept up to date by the scheduler's deltas."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsruntime.artifact.schema import NULL_PAGE


class PageTable:
    """Which page holds the i-th page of each slot: [max_batch, max_pages] int32.

    Entries that no delta has written name the null page. Entries beyond a sequence's length may be
    stale from the slot's last owner: nothing reads them.
    """

    def __init__(self, max_batch: int, max_pages: int) -> None:
        self.pages: NDArray[np.int32] = np.full((max_batch, max_pages), NULL_PAGE, np.int32)

    def apply(self, deltas: NDArray[np.int32]) -> None:
        """Write rows (slot, index, page) of `deltas` [n, 3], in order."""
        if len(deltas):
            self.pages[deltas[:, 0], deltas[:, 1]] = deltas[:, 2]

    def gather(self, slots: NDArray[np.int32], out: NDArray[np.int32]) -> None:
        """Fill `out` [sequences, max_pages] with the slots' rows, then rows of the null page."""
        count = len(slots)
        self.pages.take(slots, axis=0, out=out[:count], mode="clip")
        out[count:] = NULL_PAGE
