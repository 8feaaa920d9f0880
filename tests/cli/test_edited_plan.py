"""A plan edited by hand is refused in one line: by its seal, or, sealed again, by its proof."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import TinyHf
from deployments import Run, build, command, recipe

from tsruntime.artifact.digest import canonical_json
from tsruntime.artifact.manifest import FileEntry, manifest_bytes, read_manifest, seal

Document = dict[str, Any]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_hf: TinyHf) -> Path:
    limits = {"max_model_len": 64, "max_batch": 2, "token_budget": 32}
    contents = recipe(tiny_hf("llama"), world=2, chat=False, limits=limits)
    return build(tmp_path_factory.mktemp("built"), contents)


@pytest.fixture
def artifact(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "edited"))


def other_eps(plan: Document) -> None:
    """An op's attribute."""
    ops: list[Document] = plan["programs"][0]["ops"]
    next(op for op in ops if "eps" in op["attributes"])["attributes"]["eps"] *= 10


def weight_of(plan: Document, name: str) -> Document:
    """The first layer's weight of that name."""
    return next(
        w for w in plan["weights"] if w["name"] == f"model.layers.0.self_attn.{name}.weight"
    )


def other_dim(plan: Document) -> None:
    """The output's square weight cut along its other dim."""
    weight = weight_of(plan, "o_proj")
    weight["parts"][0]["dim"] = 0
    weight["shape"].reverse()
    for program in plan["programs"]:
        for value in program["values"]:
            if value["storage"].get("weight") == weight["name"]:
                value["shape"].reverse()


def other_order(plan: Document) -> None:
    """Values where keys were, in the packed weight."""
    parts = weight_of(plan, "qkv_proj")["parts"]
    parts[1], parts[2] = parts[2], parts[1]


def other_tensor(plan: Document) -> None:
    """Another layer's weight."""
    (part,) = weight_of(plan, "o_proj")["parts"]
    part["tensor"] = part["tensor"].replace("layers.0", "layers.1")


def other_wire(plan: Document) -> None:
    """Positions of the cache's slots where the slots were."""
    ops: list[Document] = plan["programs"][0]["ops"]
    inputs = next(op for op in ops if op["op"].endswith("kv_write"))["inputs"]
    inputs[inputs.index("slot_mapping.full")] = "positions"


EDITS = (
    (other_eps, "TS0507"),
    (other_dim, "TS0506"),
    (other_order, "TS0507"),
    (other_tensor, "TS0507"),
    (other_wire, "TS0507"),
)
"""An edit, and the error: of wiring and types, or of the proof."""


def edit(artifact: Path, change: Callable[[Document], None]) -> None:
    """Change plan.json, which stays canonical."""
    file = artifact / "plan.json"
    plan = json.loads(file.read_bytes())
    change(plan)
    file.write_bytes(canonical_json(plan))


def seal_again(artifact: Path) -> None:
    """Give the manifest the edited plan's digest, as if it had been built so."""
    old, data = read_manifest(artifact), (artifact / "plan.json").read_bytes()
    files = {**old.files, "plan.json": FileEntry.of(data)}
    new = seal(old.name, old.target, files, old.consumed, old.versions)
    (artifact / "manifest.json").write_bytes(manifest_bytes(new))


@pytest.mark.parametrize(("change", "code"), EDITS, ids=lambda x: getattr(x, "__name__", x))
def test_check_refuses_it(
    tscompile: Run, artifact: Path, change: Callable[[Document], None], code: str
) -> None:
    edit(artifact, change)
    sealed = tscompile("check", artifact)
    assert sealed.code == 1
    assert "plan.json" in sealed.err
    seal_again(artifact)
    proven = tscompile("check", artifact)
    assert proven.code == 1
    assert proven.out == ""
    error, remedy = proven.err.strip().splitlines()
    assert error.startswith(f"error[{code}]: program decode_")
    assert "rebuild the artifact" in remedy


def test_sealed_again_unchanged_it_is_accepted(tscompile: Run, artifact: Path) -> None:
    edit(artifact, lambda plan: None)
    seal_again(artifact)
    assert tscompile("check", artifact).code == 0


def test_tsrun_refuses_it_at_load(artifact: Path) -> None:
    edit(artifact, other_tensor)
    seal_again(artifact)
    ended = command("tsrun", artifact, "--port", "0")
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if "error[" in line]
    assert len(lines) == 1
    assert "TS0507" in lines[0]
    assert "Traceback" not in ended.stderr
