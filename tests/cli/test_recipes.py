"""The recipes that ship: each a model of the published size, none slower than a peer."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
import torch

from tscompile.deployment import requested
from tscompile.explain.document import documented, lines
from tscompile.explain.peers import compare
from tscompile.models import build
from tscompile.models.annotations import checkpoint_names
from tscompile.recipe import load

RECIPES = Path(__file__).parents[2] / "recipes"

# Billions of parameters from the models' cards; multi-token-prediction layers are not counted.
PUBLISHED = {
    "deepseek-v3": 671.0,
    "gpt-oss-120b": 116.8,
    "gpt-oss-20b": 20.9,
    "kimi-k2": 1026.4,
    "llama-3.1-70b": 70.6,
    "llama-3.1-8b": 8.03,
    "mistral-7b-v0.3": 7.25,
    "qwen2.5-7b": 7.62,
    "qwen3-235b-a22b": 235.1,
    "qwen3-30b-a3b": 30.5,
    "qwen3-8b": 8.19,
    "qwen3-8b-fp8": 8.19,
}
DUMMY = [
    path for path in sorted(RECIPES.glob("*.yaml")) if "weights: dummy" in path.read_text("utf-8")
]


@pytest.mark.parametrize("path", DUMMY, ids=[path.stem for path in DUMMY])
def test_a_recipe_asks_for_a_model_of_the_published_size(path: Path) -> None:
    recipe = load(path)
    request = requested(recipe)
    with torch.device("meta"):
        model = build(request.model)
    assert isinstance(model, torch.nn.Module)
    names = checkpoint_names(model)
    shapes = {names[id(p)]: p.shape for p in model.parameters()}
    total = sum(prod(shape) for shape in shapes.values()) / 1e9
    assert recipe.model.config is not None
    published = PUBLISHED.get(Path(recipe.model.config).stem)
    if published is not None:
        assert total == pytest.approx(published, rel=2e-3)
    else:
        assert path.stem == "llama-tiny-dummy"


def test_the_fp8_recipe_has_the_published_bytes() -> None:
    """8.79 GiB, by measurements of Qwen3-8B-FP8 that others published."""
    row = next(
        line
        for line in (RECIPES / "README.md").read_text("utf-8").splitlines()
        if "(qwen3-8b-fp8" in line
    )
    number, unit = row.split("|")[5].split()
    assert unit == "GB"
    assert float(number) * 1e9 / 2**30 == pytest.approx(8.79, abs=0.006)


def test_every_config_is_used() -> None:
    used = {Path(load(path).model.config or "").stem for path in DUMMY}
    assert {path.stem for path in (RECIPES / "configs").glob("*.json")} == used


def never_slower(name: str) -> str:
    recipe = load(RECIPES / f"{name}.yaml")
    comparison = compare(requested(recipe))
    assert len(comparison.peers) + len(comparison.unable) == 3
    for against in comparison.peers:
        for ours, theirs in zip(comparison.prices, against.prices, strict=True):
            assert ours <= theirs
        assert comparison.time <= against.time
    return "\n".join(lines(recipe, comparison))


def test_ours_is_never_predicted_slower_than_a_peer() -> None:
    assert "n/a" not in never_slower("qwen3-30b-a3b-ep2")


@pytest.mark.nightly
def test_the_document_of_plans_is_what_the_recipes_give() -> None:
    text = (RECIPES.parent / "docs" / "plans.md").read_text("utf-8")
    for recipe in documented(RECIPES):
        assert never_slower(recipe.name) in text
