"""What a simulation may find (TS03xx)."""

from __future__ import annotations

from tskernels.errors import TsError


class SimulationDiverged(TsError):
    """A value of the sharded plan is not the unsharded program's."""

    code = "TS0330"
    summary = "A value of the simulated plan differs from the unsharded program's."


class SimulationStuck(TsError):
    """The ranks wait for one another."""

    code = "TS0331"
    summary = "Simulated ranks wait for one another, or meet in different collectives."


class CannotShrink(TsError):
    """A plan whose sizes no smaller ones divide alike."""

    code = "TS0332"
    summary = "The plan cannot be transplanted onto smaller sizes."
