"""The hand-written plan as an artifact on disk, with generated weights and no tokenizer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tiny_certificate import tiny_certificate
from tiny_plan import MAX_LEN, VOCAB, Sizes, tiny_plan

from tsruntime.artifact.digest import canonical_json
from tsruntime.artifact.load import plan_bytes
from tsruntime.artifact.manifest import FileEntry, manifest_bytes, seal
from tsruntime.artifact.proof.certificate import certificate_bytes
from tsruntime.artifact.schema import Plan
from tsruntime.artifact.serving import ServingFile


def write_artifact(folder: Path, plan: Plan) -> Path:
    """Write `plan` as an artifact into `folder`, which is made if need be."""
    world, batch = plan.mesh.world, plan.limits.max_batch
    serving = ServingFile("tiny", MAX_LEN, batch, VOCAB, world, chat=False, has_tokenizer=False)
    files = {
        "plan.json": plan_bytes(plan),
        "certificate.json": certificate_bytes(tiny_certificate()),
        "serving.json": canonical_json(asdict(serving)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    entries = {name: FileEntry.of(data) for name, data in files.items()}
    target = {"device": "cpu", "arch": plan.target.arch, "topology": "host"}
    manifest = seal("tiny", target, entries, {}, {})
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    return folder


def write_tiny_artifact(folder: Path, world: int) -> Path:
    """The tiny model's artifact for a world of one or three ranks."""
    return write_artifact(folder, tiny_plan(Sizes(world=world)))
