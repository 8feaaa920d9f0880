"""A recorded program on the host: its bound kernels, replayed in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostGraph:
    """The kernels of one program. Replaying looks nothing up, and allocates nothing itself."""

    kernels: tuple[Callable[[], None], ...]

    def replay(self) -> None:
        """Run every kernel once, in program order."""
        for kernel in self.kernels:
            kernel()
