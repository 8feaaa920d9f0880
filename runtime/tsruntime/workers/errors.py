"""Failures of the rank processes (TS06xx)."""

from __future__ import annotations

from tskernels.errors import TsError


class RankFailed(TsError):
    """A rank process ended, or could not start."""

    code = "TS0611"
    summary = "A rank process failed, was killed, or never came up."

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="see the log above, then start tsrun again")


class PlanMismatch(TsError):
    """Ranks loaded different plans."""

    code = "TS0612"
    summary = "The ranks loaded artifacts whose plans differ."


class ReplicasNotServed(TsError):
    """The plan has attention replicas, each with requests of its own; the engine fills only one."""

    code = "TS0613"
    summary = "The plan has several attention replicas, which `tsrun` does not serve yet."
