"""What a rank process is told when it starts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PEER_LOST_EXIT = 3
"""Exit code of a rank that ended because another one was gone."""

PARENT_LOST_EXIT = 4
"""Exit code of a rank whose launcher was gone."""


@dataclass(frozen=True, slots=True)
class RankSettings:
    """One rank's place. File descriptors are inherited; `commands` is -1 on ranks other than 0.

    `rendezvous` is a folder where the ranks meet, empty in a world of one. `started` is the
    launcher's `time.monotonic()`, in seconds. `trusted` are digests of kernel packs.
    """

    artifact: str
    rank: int
    world: int
    threads: int
    rendezvous: str
    control: int
    commands: int
    started: float
    trusted: tuple[str, ...] = ()

    def to_argument(self) -> str:
        """The settings as one command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> RankSettings:
        """The inverse of `to_argument`."""
        given: dict[str, Any] = json.loads(text)
        given["trusted"] = tuple(given["trusted"])
        return cls(**given)


def threads_per_rank(world: int, cores: int, environment: Mapping[str, str]) -> int:
    """Compute threads of one rank: OMP_NUM_THREADS if it is set, else the cores shared equally."""
    given = environment.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else max(1, cores // world)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
