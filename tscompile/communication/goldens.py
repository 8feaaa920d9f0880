"""Golden plans: `python -m tscompile.communication.goldens` writes them, as `make golden` does.

The golden of `recipes/x.yaml` is `artifacts/x.plan` beside the recipes' folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tscompile.communication.compiled import planned
from tscompile.communication.errors import GoldenError
from tscompile.communication.parser import parse_golden
from tscompile.communication.plan import CommunicationPlan
from tscompile.communication.printer import golden_text
from tscompile.recipe import load

RECIPES = Path("recipes")


@dataclass(frozen=True, slots=True)
class Stale:
    """A golden that is not what its recipe compiles to; it holds `before`, the recipe `after`."""

    recipe: Path
    before: CommunicationPlan
    after: CommunicationPlan


def golden_path(recipe: Path) -> Path:
    """Where the golden plan of a recipe is."""
    return recipe.parent.parent / "artifacts" / f"{recipe.stem}.plan"


def recipes_of(folder: Path) -> list[Path]:
    """The recipes of a folder, by name."""
    return sorted(folder.glob("*.yaml"))


def check_presence(recipes: Sequence[Path], *, every: bool) -> None:
    """Each recipe has a golden; where `recipes` are `every` one there is, no other golden exists.

    Raises GoldenError with all that are missing or left over.
    """
    wanted = {golden_path(recipe) for recipe in recipes}
    there = {path for folder in {p.parent for p in wanted} for path in folder.glob("*.plan")}
    missing = sorted(str(path) for path in wanted - there)
    left = sorted(str(path) for path in there - wanted) if every else []
    if missing or left:
        parts = [f"no {path}" for path in missing] + [f"no recipe for {path}" for path in left]
        raise GoldenError("; ".join(parts), remedy="run `make golden` and commit what it changes")


def stale(recipe: Path) -> Stale | None:
    """What the golden says and what the recipe compiles to, where those differ."""
    path, plan = golden_path(recipe), planned(load(recipe))
    committed = path.read_text(encoding="utf-8")
    if committed == golden_text(plan):
        return None
    return Stale(recipe, parse_golden(committed, str(path)), plan)


def main(folder: Path = RECIPES) -> None:
    """Write the goldens of every recipe of a folder."""
    for recipe in recipes_of(folder):
        path = golden_path(recipe)
        path.parent.mkdir(exist_ok=True)
        path.write_text(golden_text(planned(load(recipe))), encoding="utf-8")
        print(path, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
