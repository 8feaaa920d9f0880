"""What a collective kernel asks of the transport; the runtime implements it over gloo or NCCL."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Communicator(Protocol):
    """One group of ranks, ordered by coordinate along the group's axes.

    Every rank of the group makes the same calls in the same order. All tensors are contiguous.
    """

    @property
    def rank(self) -> int:
        """Coordinate of the caller in the group."""
        ...

    @property
    def size(self) -> int:
        """Number of ranks in the group."""
        ...

    def all_reduce(self, x: Tensor, reduce: str) -> None:
        """Replace x by its elementwise `reduce` ("sum" or "max"), equal bits on every rank."""
        ...

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """Out [size, *x.shape]: every rank's x, by coordinate."""
        ...

    def reduce_scatter(self, out: Tensor, x: Tensor, reduce: str) -> None:
        """X [size, *out.shape]: out is the elementwise `reduce` of every rank's x[rank]."""
        ...

    def all_to_all(self, out: Tensor, x: Tensor) -> None:
        """Both [size, ...]: out[i] is what rank i holds at x[rank]."""
        ...
