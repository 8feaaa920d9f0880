"""What every section of a recipe shares: strictness, documentation, and refusals with a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A mapping of the recipe: unknown keys refused, immutable, attribute docstrings as help."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Count: TypeAlias = Annotated[int, Field(gt=0, strict=True)]
"""A whole number of at least 1; no text, no boolean, no 8.0."""


@dataclass(frozen=True, slots=True)
class Vllm:
    """vLLM's name for the same setting, for the table in docs/recipe.md."""

    name: str


@dataclass(frozen=True, slots=True)
class Default:
    """How the table words a default that depends on other keys."""

    text: str


class RefusalError(ValueError):
    """Raised by a field's validator: what is wrong, and the remedy."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
