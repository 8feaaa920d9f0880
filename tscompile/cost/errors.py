"""Errors of the cost model."""

from __future__ import annotations

from tskernels.errors import TsError


class TopologyError(TsError):
    """A topology that is not known."""

    code = "TS0312"
    summary = "The target names a topology that the cost model does not know."
