"""Errors of communication plans: files that are none, and goldens that no longer hold."""

from __future__ import annotations

from tskernels.errors import TsError


class PlanFileError(TsError):
    """A plan file that does not parse."""

    code = "TS0340"
    summary = "The file is not a communication plan that this version reads."


class GoldenError(TsError):
    """Golden plans that are not what the recipes compile to."""

    code = "TS0341"
    summary = "A committed plan is missing, or is not what its recipe compiles to."
