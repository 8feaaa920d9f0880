"""What may be compared: an artifact, a plan file, a recipe; the last two also at a revision."""

from __future__ import annotations

from pathlib import Path

from tscompile.communication.compiled import planned
from tscompile.communication.extraction import communication
from tscompile.communication.parser import FIRST_WORD, parse_golden
from tscompile.communication.plan import CommunicationPlan
from tscompile.diff.errors import SideError
from tscompile.diff.revision import recipe_at, text_at
from tscompile.recipe import load
from tsruntime.artifact.load import load_plan

GIT = "git:"
"""How a side begins that is read from git: `git:REV:recipes/x.yaml`."""

SUFFIX = ".plan"
"""How the name of a plan file ends."""

_REMEDY = "give an artifact, a .plan file, a recipe, or git:REV:recipes/x.yaml"


def read_side(source: str) -> CommunicationPlan:
    """The communication plan of a side.

    Recipes, also those of a revision, are compiled by this version. Raises SideError for what is
    none of them, and whatever reading or compiling it raises.
    """
    if source.startswith(GIT):
        revision, _, path = source.removeprefix(GIT).partition(":")
        if not revision or not path:
            raise SideError(f"{source!r} names no file of a revision", remedy=_REMEDY)
        if path.endswith(SUFFIX):
            return parse_golden(text_at(revision, path), source)
        with recipe_at(revision, path) as recipe:
            return planned(recipe)
    path = Path(source)
    if path.is_dir():
        return communication(load_plan(path))
    if not path.is_file():
        raise SideError("there is no such file or folder", remedy=_REMEDY, where=source)
    if _is_plan(path):
        return parse_golden(path.read_text(encoding="utf-8"), source)
    return planned(load(path))


def _is_plan(path: Path) -> bool:
    first = FIRST_WORD.encode()
    with path.open("rb") as file:
        return path.suffix == SUFFIX or file.read(len(first)) == first
