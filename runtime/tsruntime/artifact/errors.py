"""What can be wrong with an artifact (TS05xx)."""

from __future__ import annotations

from pathlib import Path

from tskernels.errors import TsError


class ArtifactMissing(TsError):
    """The path holds no artifact."""

    code = "TS0501"
    summary = "The path given holds no artifact, or the artifact has no manifest."

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"no artifact here: {path / 'manifest.json'} does not exist",
            remedy="give the folder that `tscompile build` wrote, such as artifacts/<recipe name>",
            where=str(path),
        )


class SchemaVersionMismatch(TsError):
    """Another version of the artifact format."""

    code = "TS0502"
    summary = "The artifact was written in another version of the format."

    def __init__(self, path: Path, found: object, expected: int) -> None:
        super().__init__(
            f"artifact schema version {found} but this runtime reads version {expected}",
            remedy="rebuild the artifact with this version of tscompile",
            where=str(path),
        )


class ArtifactDamaged(TsError):
    """A file of the artifact is not what the manifest says."""

    code = "TS0503"
    summary = "A file of the artifact is missing, cut short or altered."

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(what, remedy="copy the artifact again, or rebuild it", where=str(path))


class WeightsAbsent(TsError):
    """The artifact travelled without its weights."""

    code = "TS0504"
    summary = "The artifact's weights are not there."

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(
            f"weights/{name} is absent: this artifact travelled without its weights",
            remedy=f"run `tscompile weights {path} --from CHECKPOINT`",
            where=str(path),
        )


class TargetMismatch(TsError):
    """The artifact is for other hardware."""

    code = "TS0505"
    summary = "The artifact was built for hardware other than this machine's."

    def __init__(self, path: Path, built: str, here: str) -> None:
        super().__init__(
            f"built for {built}, but this machine offers {here}",
            remedy="build with `target` set to this machine's device and arch",
            where=str(path),
        )


class PlanInvalid(TsError):
    """The plan contradicts itself."""

    code = "TS0506"
    summary = "The plan in the artifact breaks a rule of its schema."

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what, remedy="rebuild the artifact; never edit plan.json", where=where)
