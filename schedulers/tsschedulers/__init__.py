"""The scheduler: a C++ core behind typed stubs."""

from __future__ import annotations

from tsschedulers._core import (
    Admission,
    CacheGroupConfig,
    Config,
    GroupPlan,
    Handle,
    Plan,
    Scheduler,
    Stats,
    __version__,
)

__all__ = [
    "Admission",
    "CacheGroupConfig",
    "Config",
    "GroupPlan",
    "Handle",
    "Plan",
    "Scheduler",
    "Stats",
    "__version__",
]
