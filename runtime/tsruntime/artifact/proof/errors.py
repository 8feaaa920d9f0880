"""Refusals of the proof checker (TS05xx)."""

from __future__ import annotations

from tskernels.errors import TsError


class PlanUnproven(TsError):
    """The plan does not compute what its certificate says, or cannot be shown to."""

    code = "TS0507"
    summary = "The plan's programs do not compute the traced program of the certificate."

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what, remedy="rebuild the artifact; never edit plan.json", where=where)


class CertificateInvalid(TsError):
    """The certificate contradicts itself or does not fit its schema."""

    code = "TS0508"
    summary = "The artifact's certificate is malformed."

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what, remedy="rebuild the artifact", where=where)


class Refusal(Exception):
    """Why one step is not proven; the player adds where it stands."""
