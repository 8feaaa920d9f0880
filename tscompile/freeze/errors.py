"""What can go wrong while an artifact is written (TS051x)."""

from __future__ import annotations

from pathlib import Path

from tskernels.errors import TsError


class DiskFull(TsError):
    """No space is left for the artifact."""

    code = "TS0510"
    summary = "The disk filled up while the artifact was written; nothing of it was kept."

    def __init__(self, destination: Path, free: int) -> None:
        super().__init__(
            f"the disk is full ({free:,} bytes free); nothing was written",
            remedy=f"free some space on the disk of {destination.parent}, or give another --out",
            where=str(destination),
        )


class DestinationTaken(TsError):
    """The destination holds something else than an artifact."""

    code = "TS0511"
    summary = "The place for the artifact holds something that is not an artifact."

    def __init__(self, destination: Path) -> None:
        super().__init__(
            "exists and holds no artifact (no manifest.json); it will not be replaced",
            remedy="remove it yourself, or give another --out",
            where=str(destination),
        )


class WeightsDiffer(TsError):
    """The checkpoint given is not the one that the artifact was built from."""

    code = "TS0512"
    summary = "Weights made from this checkpoint do not have the digests that the manifest seals."

    def __init__(self, artifact: Path, file: str, found: str, expected: str) -> None:
        super().__init__(
            f"weights/{file} would have sha256 {found}, the manifest seals {expected}",
            remedy="give the checkpoint that the artifact was built from, or rebuild the artifact",
            where=str(artifact),
        )
