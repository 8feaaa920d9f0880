"""A package with kernels, really installed: its kernel is pinned, and asked for where it ran."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deployments import ROOT, EngineClient, command, greedy, recipe, start, write_recipe

PACKAGE = ROOT / "tests" / "kernels" / "plugin_example"
PROMPTS = [[5, 9, 3], [7] * 20]


def install(package: Path, target: Path) -> None:
    """Build the package and install it for whoever has `target` on its path."""
    pip = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, *pip, "--target", str(target), str(package)], check=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PACKAGE, folder / "source")
    install(folder / "source", folder / "site")
    return folder / "site"


def built(folder: Path, *sites: Path) -> Any:
    """A build of a tiny model by a process that sees the packages of `sites`; how it ended."""
    contents = recipe("unused", chat=False)
    config = ROOT / "recipes/configs/llama-tiny.json"
    contents["model"] = {"config": str(config), "weights": "dummy", "seed": 3}
    path = write_recipe(folder, contents)
    seen = {"PYTHONPATH": ":".join(map(str, sites))}
    return command("tscompile", "build", path, "--out", folder / "artifact", env=seen)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Path:
    folder = tmp_path_factory.mktemp("with")
    done = built(folder, site)
    assert done.returncode == 0, done.stderr
    return folder / "artifact"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("without")
    done = built(folder)
    assert done.returncode == 0, done.stderr
    return folder / "artifact"


def pins(artifact: Path) -> list[Any]:
    found = json.loads((artifact / "kernels" / "pins.json").read_text())
    return [pin for pin in found if pin["op"] == "add"]


def test_it_wins_by_its_band_with_the_reason(artifact: Path) -> None:
    assert pins(artifact)
    for pin in pins(artifact):
        assert (pin["winner"], pin["reason"]) == ("add.example", "PLUGIN, priority 16")
        assert ["add.native", "is PERFORMANT, add.example is PLUGIN"] in pin["losers"]
    plan = json.loads((artifact / "plan.json").read_text())
    used = {op["pin"] for program in plan["programs"] for op in program["ops"]}
    assert "add.example" in used
    assert "add.native" not in used


def test_without_it_the_built_in_one_is_pinned(plain: Path) -> None:
    assert {pin["winner"] for pin in pins(plain)} == {"add.native"}
    assert not any("add.example" in dict(pin["losers"]) for pin in pins(plain))


def test_it_is_listed_among_the_kernels(site: Path) -> None:
    done = command("tscompile", "kernels", "list", "--op", "add", env={"PYTHONPATH": str(site)})
    assert "add.example    PLUGIN       cpu; float32" in done.stdout.splitlines()
    done = command("tscompile", "kernels", "list", "--op", "add")
    assert "add.example" not in done.stdout


def answers(artifact: Path) -> list[list[int]]:
    with start(artifact) as workers:
        return [a.tokens for a in EngineClient(workers).generate(PROMPTS, greedy(8))]


def test_the_artifact_runs_where_it_is_installed_and_nowhere_else(
    artifact: Path, plain: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("tsrun", artifact, "--bench")
    assert done.returncode == 1
    assert "error[TS0402]: there is no kernel 'add.example'" in done.stderr
    assert "install the plug-in that provides it" in done.stderr
    wanted = answers(plain)
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert answers(artifact) == wanted


def test_two_packages_with_one_kernel_are_refused(site: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(PACKAGE, other)
    (other / "ts_example_kernels").rename(other / "ts_other_kernels")
    settings = other / "pyproject.toml"
    text = settings.read_text().replace("ts_example_kernels", "ts_other_kernels")
    text = text.replace("ts-example-kernels", "ts-other-kernels").replace("example =", "other =")
    settings.write_text(text)
    install(other, tmp_path / "site")
    done = built(tmp_path, site, tmp_path / "site")
    assert done.returncode == 1
    assert "error[TS0403]: kernel add.example is registered twice" in done.stderr
    assert not (tmp_path / "artifact").exists()
