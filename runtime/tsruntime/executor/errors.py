"""Failures of execution that a person may read (TS06xx)."""

from __future__ import annotations

from tskernels.errors import TsError


class BucketsTooSmall(TsError):
    """No program of the plan is large enough for what its limits admit."""

    code = "TS0601"
    summary = "The plan's largest program is smaller than a step within its limits may be."


class PeerLostError(RuntimeError):
    """Another rank stopped answering; whoever launched the ranks knows which one and why."""


class DeviceTooSmall(TsError):
    """The GPU has less free memory than the plan takes."""

    code = "TS0602"
    summary = "The GPU has less free memory than the plan's weights, KV cache and buffers take."
