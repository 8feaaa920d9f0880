"""Checks of a recipe against its model: heads, positions, and what the KV pool holds."""

from __future__ import annotations

from tscompile.errors import Problem, RecipeError

from .checks import check_pool
from .parallel import divisors
from .recipe import Recipe


def check_parallel(recipe: Recipe, *, heads: int, kv_heads: int, intermediate: int) -> None:
    """Refuse group sizes that the model's heads and MLP width don't divide by.

    A KV head is not replicated yet, so attn_tp must divide both head counts; and all groups still
    have one size. Raises `RecipeError` with the legal sizes.
    """
    sizes = recipe.parallel
    problems: list[Problem] = []
    attn = [d for d in divisors(kv_heads) if heads % d == 0]
    if sizes.attn_tp not in attn:
        problems.append(
            Problem(
                recipe.where("parallel", "attn_tp"),
                f"attn_tp {sizes.attn_tp} does not divide {heads} query heads and {kv_heads} KV "
                "heads (KV heads are not replicated)",
                f"legal sizes of attn_tp for this model: {', '.join(map(str, attn))}",
            )
        )
    if intermediate % sizes.dense_tp:
        legal = ", ".join(str(d) for d in attn if intermediate % d == 0)
        problems.append(
            Problem(
                recipe.where("parallel", "dense_tp"),
                f"dense_tp {sizes.dense_tp} does not divide the MLP width {intermediate}",
                f"legal sizes of dense_tp for this model: {legal}",
            )
        )
    if not sizes.world == sizes.attn_tp == sizes.dense_tp:
        problems.append(
            Problem(
                recipe.where("parallel", "world"),
                f"world {sizes.world}, attn_tp {sizes.attn_tp} and dense_tp {sizes.dense_tp} "
                "differ; groups of unequal size are not supported yet",
                "leave attn_tp and dense_tp out, so that they equal world",
            )
        )
    _raise(recipe, problems)


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
