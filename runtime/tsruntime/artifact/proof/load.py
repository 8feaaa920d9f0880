"""Reading an artifact's certificate, and proving its plan with it."""

from __future__ import annotations

from pathlib import Path

from tsruntime.artifact.load import load_plan
from tsruntime.artifact.manifest import read_manifest, verify_files
from tsruntime.artifact.proof.certificate import Certificate, parse_certificate
from tsruntime.artifact.proof.checker import check_proof

FILE = "certificate.json"


def load_certificate(path: Path) -> Certificate:
    """The certificate of the artifact at `path`, its file's digest verified first."""
    manifest = read_manifest(path)
    verify_files(path, manifest, lambda name: name == FILE)
    return parse_certificate((path / FILE).read_bytes(), path)


def prove(path: Path) -> None:
    """Raise PlanInvalid or PlanUnproven unless the artifact's plan computes its certificate."""
    check_proof(load_plan(path), load_certificate(path))
