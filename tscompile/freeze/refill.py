"""Filling an artifact's weights from a checkpoint, held to the digests that it seals."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

from tscompile.checkpoint.base import Checkpoint
from tscompile.freeze.errors import DiskFull, WeightsDiffer
from tscompile.freeze.weights import Progress, write_weights
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.schema import Plan


def refill(artifact: Path, plan: Plan, checkpoint: Checkpoint, progress: Progress) -> None:
    """Write `artifact/weights`; on any error nothing of it is kept."""
    stage = Path(tempfile.mkdtemp(prefix=".weights.", suffix=".partial", dir=artifact))
    try:
        written = write_weights(plan, checkpoint, stage, progress)
        sealed = read_manifest(artifact).files
        for name, entry in written.items():
            if entry != (expected := sealed[f"weights/{name}"]):
                raise WeightsDiffer(artifact, name, entry.sha256, expected.sha256)
        for name in written:
            (artifact / "weights").mkdir(exist_ok=True)
            (stage / name).replace(artifact / "weights" / name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(artifact, shutil.disk_usage(artifact).free) from error
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
