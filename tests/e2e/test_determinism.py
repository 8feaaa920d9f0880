"""The same inputs give the same bytes: in any directory, home, clock, zone and hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from checkpoints import TinyHf
from deployments import command, manifest, recipe, write_recipe

LATER = """
import datetime, sys, time
real = time.time
time.time = lambda: real() + 1e8
time.time_ns = lambda: int(time.time() * 1e9)
from tscompile.cli import main
main(sys.argv[1:])
"""


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_two_builds_are_identical(tiny_hf: TinyHf, tmp_path: Path) -> None:
    source = tiny_hf("llama3", shards=2)
    places = [tmp_path / "one", tmp_path / "another" / "deeper"]
    for place in places:
        place.mkdir(parents=True)
        write_recipe(place, recipe("checkpoint", world=3))
        (place / "checkpoint").symlink_to(source)
    first = command("tscompile", "build", "recipe.yaml", cwd=places[0], env={"PYTHONHASHSEED": "1"})
    assert first.returncode == 0, first.stderr
    (tmp_path / "home").mkdir()
    changed = {"PYTHONHASHSEED": "2", "HOME": str(tmp_path / "home"), "TZ": "Asia/Tokyo"}
    words = ["build", str(places[1] / "recipe.yaml"), "--out", str(tmp_path / "out")]
    second = subprocess.run(
        [sys.executable, "-c", LATER, *words],
        env={**os.environ, **changed, "OMP_NUM_THREADS": "2", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 0, second.stderr
    one, other = tree(places[0] / "artifacts" / "under-test"), tree(tmp_path / "out")
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
    assert manifest(tmp_path / "out")["digest"]


def test_a_rebuild_over_an_older_artifact_replaces_it(tiny_hf: TinyHf, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, recipe(tiny_hf("llama")))
    digests: list[str] = []
    for max_batch in (2, 4):
        option = f"limits.max_batch={max_batch}"
        done = command("tscompile", "build", path, "--out", tmp_path / "a", "--set", option)
        assert done.returncode == 0, done.stderr
        digests.append(manifest(tmp_path / "a")["digest"])
    assert digests[0] != digests[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "recipe.yaml"]
