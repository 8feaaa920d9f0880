"""A recipe as it was at a revision of a git repository, with the files that it named then."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from tscompile.diff.errors import RevisionError
from tscompile.recipe import Recipe
from tscompile.recipe.load import validate
from tscompile.recipe.model import PACKAGE_PREFIX
from tscompile.recipe.source import parse_document

_FILES = (("model", "config"), ("model", "source"), ("tokenizer",), ("chat", "template"))
"""The keys of a recipe that name files, relative to it."""


@contextmanager
def recipe_at(revision: str, path: str) -> Generator[Recipe]:
    """The recipe `path` of the repository around the current folder, at `revision`.

    As for git, `path` is from the repository's root, unless it begins with `./`. Files that the
    recipe names are those of the revision, where git has them, else those that lie there now:
    checkpoints are seldom in git. They are there until the block ends. Raises RevisionError, and
    what loading a recipe raises.
    """
    tree = _tree(revision)
    inside = _inside(tree, path)
    text = text_at(revision, path)
    document = parse_document(text, f"git:{revision}:{inside}")
    with TemporaryDirectory(prefix="tscompile-") as folder:
        for key in _FILES:
            _point(document.data, key, tree, Path(inside).parent, Path(folder))
        yield validate(document)


def text_at(revision: str, path: str) -> str:
    """The text of a file at a revision. Raises RevisionError."""
    tree = _tree(revision)
    shown = _git(tree.root, "show", f"{tree.commit}:{_inside(tree, path)}")
    return shown.decode("utf-8", "replace")


def _tree(revision: str) -> _Tree:
    root = Path(_git(Path(), "rev-parse", "--show-toplevel").decode().strip())
    commit = _git(root, "rev-parse", "--verify", f"{revision}^{{commit}}")
    return _Tree(root, commit.decode().strip())


def _inside(tree: _Tree, path: str) -> str:
    """A path from the repository's root."""
    return os.path.relpath(path, tree.root) if path.startswith("./") else os.path.normpath(path)


@dataclass(frozen=True, slots=True)
class _Tree:
    """The files of one commit."""

    root: Path
    commit: str

    def has(self, path: str) -> bool:
        words = ("git", "-C", str(self.root), "cat-file", "-e", f"{self.commit}:{path}")
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def extract(self, path: str, folder: Path) -> None:
        """Lay a file or folder under `folder`."""
        packed = _git(self.root, "archive", "--format=tar", self.commit, "--", path)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")


def _point(
    data: dict[str, object], key: tuple[str, ...], tree: _Tree, beside: Path, folder: Path
) -> None:
    """Let a key of a recipe that lies `beside` name its file wherever that is now."""
    section: object = data if len(key) == 1 else data.get(key[0])
    if not isinstance(section, dict):
        return
    holder = cast("dict[str, object]", section)
    named = holder.get(key[-1])
    if not isinstance(named, str) or named.startswith(PACKAGE_PREFIX):
        return
    path = os.path.normpath(beside / named)
    if not path.startswith(("..", "/")) and tree.has(path):
        tree.extract(path, folder)
        holder[key[-1]] = str(folder / path)
    else:
        holder[key[-1]] = str(tree.root / path)


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    except OSError as error:
        raise RevisionError(
            f"git does not run: {error.strerror}", remedy="install git", where="git"
        ) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RevisionError(
            said[0] if said else f"git {words[0]} failed",
            remedy="name a revision that this clone has, and a file of it; a shallow clone lacks "
            "most (fetch-depth: 0)",
            where=" ".join(("git", *words)),
        )
    return done.stdout
