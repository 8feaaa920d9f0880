"""What can be wrong with a kernel pack (TS041x)."""

from __future__ import annotations

from tskernels.errors import TsError


class PackDamaged(TsError):
    """A pack is not there, or not what its manifest says."""

    code = "TS0410"
    summary = "A kernel pack is missing, malformed or altered."


class PackMisfit(TsError):
    """A pack is whole, but not for this use."""

    code = "TS0411"
    summary = "A kernel pack is for another architecture or interface, or lacks a function."


class PackNotBuilt(TsError):
    """A pack's sources or compiler are not there, or it does not compile."""

    code = "TS0412"
    summary = "A kernel pack cannot be built: its sources, its compiler, or its compilation fails."


class PackUntrusted(TsError):
    """An artifact holds native code that nobody vouched for."""

    code = "TS0413"
    summary = "An artifact holds a kernel pack whose digest `tsrun` was not told to trust."


class PackCallFailed(TsError):
    """A function of a pack reported a failure."""

    code = "TS0414"
    summary = "A function of a kernel pack failed."
