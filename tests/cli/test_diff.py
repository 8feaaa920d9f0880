"""`tscompile diff`: what may be compared, formats, and exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from deployments import ROOT, Run
from planned import deployment, planned_once

from tscompile.communication.printer import golden_text

TINY = ROOT / "recipes/llama-tiny-dummy.yaml"


@pytest.fixture
def plans(tmp_path: Path) -> tuple[Path, Path]:
    """Two plan files, the second with twice the pages."""
    files = tmp_path / "before.plan", tmp_path / "after.plan"
    for path, pages in zip(files, (40, 80), strict=True):
        path.write_text(golden_text(planned_once(deployment(pages=pages))))
    return files


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with the tiny recipe, committed."""
    folder = tmp_path / "repository"
    (folder / "recipes/configs").mkdir(parents=True)
    shutil.copy(TINY, folder / "recipes/x.yaml")
    shutil.copy(ROOT / "recipes/configs/llama-tiny.json", folder / "recipes/configs")
    author = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", "-C", folder, *author, *words], check=True)
    return folder


def test_equal_plans_exit_0(tscompile: Run, plans: tuple[Path, Path]) -> None:
    done = tscompile("diff", plans[0], plans[0], "--fail-on", "kernel-change")
    assert (done.code, done.out, done.err) == (0, "summary  no difference\n", "")


def test_a_rule_that_fires_exits_3_and_is_named(tscompile: Run, plans: tuple[Path, Path]) -> None:
    words = ("diff", *plans, "--fail-on", "memory>+1%", "--fail-on", "bytes>+5%")
    done = tscompile(*words)
    assert done.code == 3
    assert done.err.startswith("fired memory>+1%: a rank holds ")
    assert "bytes" not in done.err
    assert tscompile("diff", plans[1], plans[0], "--fail-on", "memory>+1%").code == 0


@pytest.mark.parametrize("rule", ["memory>+1%%", "speed>1%", "bytes>+5", "kernel-change>1"])
def test_a_rule_that_is_none_is_wrong_usage(
    tscompile: Run, plans: tuple[Path, Path], rule: str
) -> None:
    done = tscompile("diff", *plans, "--fail-on", rule)
    assert done.code == 2
    assert "--fail-on" in done.err


def test_every_format_and_several_files(
    tscompile: Run, plans: tuple[Path, Path], tmp_path: Path
) -> None:
    page, table = tmp_path / "x.html", tmp_path / "x.md"
    done = tscompile(
        *("diff", *plans, "--format", "json", "--out", "html", page, "--out", "markdown", table)
    )
    assert done.code == 0
    data = json.loads(done.out)
    assert [setting["key"] for setting in data["diff"]["settings"]] == ["pages"]
    assert data["titles"] == [str(path) for path in plans]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "pages 40 -> 80" in table.read_text()


def test_an_artifact_is_what_its_recipe_builds(tscompile: Run, tmp_path: Path) -> None:
    artifact = tmp_path / "artifact"
    assert tscompile("build", TINY, "--out", artifact).code == 0
    done = tscompile("diff", artifact, TINY)
    assert done.out == "summary  no difference\n", done.err


def test_a_recipe_as_it_was_at_a_revision(
    tscompile: Run, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    assert tscompile("diff", "git:HEAD:recipes/x.yaml", "recipes/x.yaml").out == (
        "summary  no difference\n"
    )
    config = Path("recipes/configs/llama-tiny.json")
    wider = json.loads(config.read_text())
    config.write_text(json.dumps({**wider, "num_hidden_layers": 1 + wider["num_hidden_layers"]}))
    recipe = Path("recipes/x.yaml")
    recipe.write_text(recipe.read_text().replace("pages: 65", "pages: 66"))
    done = tscompile("diff", "git:HEAD:recipes/x.yaml", "recipes/x.yaml")
    assert "pages 65 -> 66" in done.out, done.err
    assert "layers 3 -> 4" in done.out
    monkeypatch.chdir("recipes")
    assert "pages 65 -> 66" in tscompile("diff", "git:HEAD:./x.yaml", "x.yaml").out


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("git:nowhere:recipes/x.yaml", "TS0343"),
        ("git:HEAD:recipes/y.yaml", "TS0343"),
        ("git:HEAD", "TS0342"),
        ("nothing.yaml", "TS0342"),
    ],
)
def test_a_side_that_is_not_there_is_refused(
    tscompile: Run, repository: Path, monkeypatch: pytest.MonkeyPatch, side: str, said: str
) -> None:
    monkeypatch.chdir(repository)
    done = tscompile("diff", side, "recipes/x.yaml")
    assert done.code == 1
    assert said in done.err


def test_an_architecture_that_is_not_there_is_named(
    tscompile: Run, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    config = Path("recipes/configs/llama-tiny.json")
    other = {**json.loads(config.read_text()), "architectures": ["MambaForCausalLM"]}
    config.write_text(json.dumps(other))
    done = tscompile("plan", "recipes/x.yaml")
    assert done.code == 1
    assert "MambaForCausalLM is not supported" in done.err
