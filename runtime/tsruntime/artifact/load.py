"""Reading a plan back, and checking that it obeys its schema before anything runs."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tsruntime.artifact.digest import canonical_json
from tsruntime.artifact.errors import ArtifactDamaged, SchemaVersionMismatch
from tsruntime.artifact.manifest import read_manifest, verify_files
from tsruntime.artifact.schema import SCHEMA_VERSION, Plan

_PLAN = TypeAdapter(Plan)


def plan_bytes(plan: Plan) -> bytes:
    """The canonical bytes of `plan.json`."""
    return canonical_json(_PLAN.dump_python(plan, mode="json"))


def parse_plan(data: bytes, where: Path) -> Plan:
    """A plan from the bytes of `plan.json`."""
    try:
        plan = _PLAN.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ArtifactDamaged(where, f"plan.json does not fit: {place}: {first['msg']}") from None
    if plan.schema_version != SCHEMA_VERSION:
        raise SchemaVersionMismatch(where, plan.schema_version, SCHEMA_VERSION)
    return plan


def load_plan(path: Path) -> Plan:
    """The plan of the artifact at `path`, its file's digest verified first."""
    manifest = read_manifest(path)
    verify_files(path, manifest, lambda name: name == "plan.json")
    return parse_plan((path / "plan.json").read_bytes(), path)


def verify(path: Path, *, weights: bool) -> None:
    """Check every file of the artifact against its manifest; weight files only if asked."""
    manifest = read_manifest(path)
    verify_files(path, manifest, lambda name: weights or not name.startswith("weights/"))
