"""The workflow's own steps, run here by the script for it, with a stand-in for GitHub's client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deployments import ROOT
from planned import deployment, planned_once

from tscompile.communication.printer import golden_text

FAKE_GH = """#!{python}
import json, os, re, sys
from pathlib import Path
store = Path(os.environ["FAKE_COMMENTS"])
comments = json.loads(store.read_text())
words = sys.argv[1:]
assert os.environ["GH_TOKEN"] == "secret"
if "--method" not in words:
    assert words[:3] == ["api", "--paginate", "repos/o/r/issues/7/comments"]
    marker = re.search(r'startswith\\("(.*)"\\)', words[-1])[1]
    print("\\n".join(str(i) for i, body in comments.items() if body.startswith(marker)))
    sys.exit()
body = Path(words[words.index("-F") + 1].removeprefix("body=@")).read_text()
if words[words.index("--method") + 1] == "PATCH":
    number = words[3].removeprefix("repos/o/r/issues/comments/")
    assert number in comments
else:
    assert words[3] == "repos/o/r/issues/7/comments"
    number = str(1 + len(comments))
comments[number] = body
store.write_text(json.dumps(comments))
"""


def git(folder: Path, *words: str) -> str:
    """The output of a git command in a repository."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two golden plans, the workflow and its scripts."""
    folder = tmp_path / "repository"
    (folder / "artifacts").mkdir(parents=True)
    for name in ("one", "two"):
        plan = golden_text(planned_once(deployment(name=name)))
        (folder / "artifacts" / f"{name}.plan").write_text(plan)
    (folder / ".ci").symlink_to(ROOT / ".ci")
    git(folder, "init", "-q")
    git(folder, "add", "artifacts")
    git(folder, "commit", "-q", "-m", "base")
    return folder


def run_steps(repository: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The steps but the installation, as on a pull request against the last commit but one."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "gh").write_text(FAKE_GH.format(python=sys.executable))
    (tools / "gh").chmod(0o755)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    values = {
        "github.event.pull_request.base.sha": git(repository, "rev-parse", "HEAD~1"),
        "github.event.pull_request.number": "7",
        "github.repository": "o/r",
        "github.token": "secret",
    }
    return subprocess.run(
        [
            sys.executable,
            str(ROOT / ".ci/run-workflow"),
            str(ROOT / ".github/workflows/plan-diff.yml"),
            "--skip=Install",
            *(f"--set={key}={value}" for key, value in values.items()),
        ],
        cwd=repository,
        env={
            **os.environ,
            "PATH": path,
            "RUNNER_TEMP": str(tmp_path),
            "FAKE_COMMENTS": str(tmp_path / "comments.json"),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def change(repository: Path, pages: int) -> None:
    """A commit in which `two` has that many pages."""
    plan = golden_text(planned_once(deployment(name="two", pages=pages)))
    (repository / "artifacts/two.plan").write_text(plan)
    git(repository, "commit", "-q", "-a", "-m", f"{pages} pages")


def test_the_steps_leave_one_comment_and_update_it(repository: Path, tmp_path: Path) -> None:
    store = tmp_path / "comments.json"
    store.write_text(json.dumps({"1": "a person's comment"}))
    change(repository, 80)
    done = run_steps(repository, tmp_path)
    assert done.returncode == 0, done.stderr
    first = json.loads(store.read_text())
    assert first["1"] == "a person's comment"
    assert first["2"].startswith("<!-- tscompile diff -->\n")
    assert "`two`" in first["2"]
    assert "pages 40 -> 80" in first["2"]
    assert "`one`" not in first["2"]
    assert (repository / "plan-diff/two.html").exists()
    assert (tmp_path / "summary.md").read_text() == first["2"]

    git(repository, "reset", "-q", "--hard", "HEAD~1")
    change(repository, 60)
    assert run_steps(repository, tmp_path).returncode == 0
    second = json.loads(store.read_text())
    assert set(second) == {"1", "2"}
    assert "pages 40 -> 60" in second["2"]


def test_rules_fail_the_step_that_compares(repository: Path, tmp_path: Path) -> None:
    change(repository, 80)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", ".ci/plan-diff", "HEAD~1", "out", "memory>+1%", "bytes>+1%"],
        cwd=repository,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    comment = (repository / "out/comment.md").read_text()
    assert "`memory>+1%`" in comment
    assert "`bytes>+1%`" not in comment
