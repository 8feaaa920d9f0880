"""What the runtime loads: no compiler, no model library, no torch.fx, and no torch in HTTP."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployments import ROOT, EngineClient, build, greedy, recipe, start

FORBIDDEN = ("tscompile", "transformers", "gguf")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    contents = recipe("unused", chat=False)
    config = ROOT / "recipes/configs/llama-tiny.json"
    contents["model"] = {"config": str(config), "weights": "dummy", "seed": 3}
    return build(tmp_path_factory.mktemp("dummy"), contents)


def test_the_ranks_serve_without_the_compiler(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank writes the modules it has loaded when it ends; real generation comes first."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, sys\n"
        "end = os._exit\n"
        "def report(code):\n"
        f"    path = pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.modules')\n"
        "    path.write_text('\\n'.join(sys.modules))\n"
        "    end(code)\n"
        "os._exit = report\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    workers = start(artifact)
    try:
        assert len(EngineClient(workers).generate([[1, 2, 3]], greedy(4))[0].tokens) == 4
        pids = workers.pids
    finally:
        workers.stop(grace=10)
    for pid in pids:
        modules = (tmp_path / f"{pid}.modules").read_text().split()
        assert "tsruntime.executor.executor" in modules
        assert [m for m in modules if m.split(".")[0] in FORBIDDEN] == []


@pytest.mark.parametrize(
    "module", ["tsruntime.cli", "tsruntime.server.app", "tsruntime.workers.launch"]
)
def test_the_http_process_needs_no_torch(module: str) -> None:
    script = f"import sys, {module}; print([m for m in ('torch', 'tscompile') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"


def sources() -> Iterator[Path]:
    for folder in ("runtime", "kernels", "schedulers"):
        yield from (ROOT / folder).rglob("*.py")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def test_no_source_of_the_runtime_touches_torch_fx() -> None:
    files = list(sources())
    assert len(files) > 50
    for file in files:
        names = [
            n for n in imported(ast.parse(file.read_text())) if f"{n}.".startswith("torch.fx.")
        ]
        assert names == [], file
