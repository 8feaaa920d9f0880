"""Errors of comparing plans: sides that cannot be found, or are neither plan nor recipe."""

from __future__ import annotations

from tskernels.errors import TsError


class SideError(TsError):
    """A side of a comparison that is no artifact, plan file or recipe."""

    code = "TS0342"
    summary = "A side of a comparison is no artifact, plan file or recipe."


class RevisionError(TsError):
    """A revision or a file at it that git does not have."""

    code = "TS0343"
    summary = "A revision, or a file at it, cannot be read from git."
