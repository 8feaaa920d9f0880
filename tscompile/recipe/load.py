"""Loads a recipe: file, overrides, defaults, validation; every problem in one error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from tscompile.errors import Problem, RecipeError

from .checks import cross_check, valid_sections
from .defaults import spell_digest, spell_out
from .diagnose import diagnose
from .recipe import Recipe
from .source import Document, override, read_document


def load(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe at `path` with `--set` overrides (`a.b=value`) applied.

    Raises `RecipeNotFoundError`, `RecipeSyntaxError`, `OverrideError`, or one `RecipeError` that
    lists everything wrong with its line and path.
    """
    document = read_document(Path(path))
    for assignment in overrides:
        override(document, assignment)
    return validate(document)


def validate(document: Document) -> Recipe:
    """The recipe of a parsed document, or one error with every problem."""
    spell_digest(document.data)
    data = spell_out(document.data)
    problems: list[Problem] = [problem for _, problem in document.problems]
    recipe: Recipe | None = None
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        problems.extend(diagnose(document, error))
    problems.extend(cross_check(valid_sections(data), document))
    if problems or recipe is None:
        raise RecipeError(document.file, tuple(problems))
    return recipe.bind(document)
