"""A staged folder replaces its destination whole, or leaves it alone."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tscompile.freeze import swap
from tscompile.freeze.errors import DestinationTaken, DiskFull


def build(destination: Path, text: str) -> None:
    with swap.staged(destination) as stage:
        (stage / "manifest.json").write_text(text)
        (stage / "sub").mkdir()
        (stage / "sub" / "file").write_text(text)


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_appears_with_its_files(tmp_path: Path) -> None:
    build(tmp_path / "deep" / "artifact", "one")
    assert (tmp_path / "deep/artifact/sub/file").read_text() == "one"
    assert listing(tmp_path / "deep") == ["artifact"]


def test_an_older_one_is_replaced_and_leaves_nothing_of_itself(tmp_path: Path) -> None:
    destination = tmp_path / "artifact"
    build(destination, "one")
    (destination / "stale").write_text("of the first build")
    build(destination, "two")
    assert listing(destination) == ["manifest.json", "sub"]
    assert (destination / "manifest.json").read_text() == "two"
    assert listing(tmp_path) == ["artifact"]


def test_file_systems_without_exchange_swap_by_two_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoExchange:
        def renameat2(self, *_: object) -> int:
            return -1

    destination = tmp_path / "artifact"
    build(destination, "one")
    monkeypatch.setattr(swap.ctypes, "CDLL", lambda *_, **__: NoExchange())  # pyright: ignore
    monkeypatch.setattr(swap.ctypes, "get_errno", lambda: errno.EINVAL)
    build(destination, "two")
    assert (destination / "manifest.json").read_text() == "two"
    assert listing(tmp_path) == ["artifact"]


@pytest.mark.parametrize("failure", [RuntimeError("bug"), KeyboardInterrupt()])
def test_a_failure_keeps_the_older_one_and_removes_the_new(
    tmp_path: Path, failure: BaseException
) -> None:
    destination = tmp_path / "artifact"
    build(destination, "one")
    with pytest.raises(type(failure)), swap.staged(destination) as stage:
        (stage / "manifest.json").write_text("half")
        raise failure
    assert (destination / "manifest.json").read_text() == "one"
    assert listing(tmp_path) == ["artifact"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_clear_error(tmp_path: Path, number: int) -> None:
    with (
        pytest.raises(DiskFull, match="the disk is full"),
        swap.staged(tmp_path / "artifact") as stage,
    ):
        (stage / "weights").write_text("half")
        raise OSError(number, "no space")
    assert listing(tmp_path) == []


def test_a_folder_that_is_no_artifact_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    with pytest.raises(DestinationTaken, match="will not be replaced"):
        build(tmp_path / "precious", "one")
    assert listing(tmp_path / "precious") == ["thesis.tex"]
