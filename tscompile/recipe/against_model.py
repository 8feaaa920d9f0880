"""Checks of a recipe against its model: heads, positions, and what the KV pool holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tscompile.errors import Problem, RecipeError

from .checks import check_pool
from .recipe import Recipe


class SizeProblem(Protocol):
    """What the model does not allow of one key of `parallel`."""

    @property
    def key(self) -> str:
        """Such as `attn_tp`."""
        ...

    @property
    def message(self) -> str:
        """The size, and what it does not divide."""
        ...

    @property
    def remedy(self) -> str:
        """The legal sizes."""
        ...


def check_parallel(recipe: Recipe, problems: Sequence[SizeProblem]) -> None:
    """Refuse group sizes that the model's heads, widths or experts do not divide by, all at once.

    Raises `RecipeError` with the legal sizes.
    """
    placed = [Problem(recipe.where("parallel", p.key), p.message, p.remedy) for p in problems]
    _raise(recipe, placed)


def check_model_length(recipe: Recipe, positions: int) -> None:
    """Refuse a max_model_len beyond the `positions` that the model was trained for."""
    length = recipe.limits.max_model_len
    if length <= positions:
        return
    problem = Problem(
        recipe.where("limits", "max_model_len"),
        f"max_model_len {length} is beyond the model's max_position_embeddings {positions}",
        f"lower limits.max_model_len to {positions} or less",
    )
    _raise(recipe, [problem])


def kv_pages(recipe: Recipe, bytes_per_page: int) -> int:
    """Pages of the pool, the null page included, of `bytes_per_page` on a rank over all layers.

    From `kv_cache.pages`, or as many as `kv_cache.memory` holds; refused where that is too few for
    one sequence of max_model_len.
    """
    memory = recipe.kv_cache.memory_bytes
    if memory is None:
        assert recipe.kv_cache.pages is not None  # validated: pages or memory
        return recipe.kv_cache.pages
    pages = memory // bytes_per_page
    if pages < 2:
        problem = Problem(
            recipe.where("kv_cache", "memory"),
            f"memory {recipe.kv_cache.memory} is less than two pages of {bytes_per_page} bytes",
            "give the cache more memory",
        )
        _raise(recipe, [problem])
    page_size = recipe.kv_cache.page_size
    where = recipe.where
    _raise(recipe, list(check_pool(recipe.limits, page_size, pages, lambda k: where(*map(str, k)))))
    return pages


def _raise(recipe: Recipe, problems: list[Problem]) -> None:
    if problems:
        raise RecipeError(recipe.file, tuple(problems))
