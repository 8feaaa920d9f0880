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
        sealed = read_manifest(artifact)
        written = write_weights(plan, checkpoint, stage, progress, sealed.piece_bytes)
        for name, entry in written.items():
            expected = sealed.files[f"weights/{name}"]
            for pair in zip(entry.sha256, expected.sha256, strict=True):
                if pair[0] != pair[1]:
                    raise WeightsDiffer(artifact, name, *pair)
        for name in written:
            (artifact / "weights").mkdir(exist_ok=True)
            (stage / name).replace(artifact / "weights" / name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(artifact, shutil.disk_usage(artifact).free) from error
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
