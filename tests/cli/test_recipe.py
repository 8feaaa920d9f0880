"""The recipe: defaults, overrides, paths, and the documentation generated from the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tscompile.errors import OverrideError, RecipeError
from tscompile.models.sizes import SizeProblem
from tscompile.recipe import check_model_length, check_parallel, kv_pages, load
from tscompile.recipe.document import render
from tscompile.recipe.keys import all_keys
from tscompile.recipe.kv_cache import parse_bytes

ROOT = Path(__file__).parents[2]
MINIMAL = "name: a\nmodel:\n  source: somewhere\n"


def write(directory: Path, text: str) -> Path:
    path = directory / "r.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_recipes_load_and_resolved_text_is_a_fixpoint(path: Path, tmp_path: Path) -> None:
    recipe = load(path)
    again = load(write(tmp_path, recipe.resolved()))
    assert recipe.name == path.stem
    assert again.resolved() == recipe.resolved()
    assert again.model_dump() == recipe.model_dump()


def test_defaults_are_spelled_out(tmp_path: Path) -> None:
    text = load(write(tmp_path, MINIMAL + "parallel:\n  world: 4\n")).resolved()
    assert text == (
        "name: a\n"
        "model:\n  source: somewhere\n"
        "dtype: float32\n"
        "target:\n  device: cpu\n  arch: x86_64\n  topology: cpu-gloo\n"
        "parallel:\n  world: 4\n  attn_tp: 4\n  dense_tp: 4\n  moe_tp: 4\n  moe_ep: 1\n"
        "buckets:\n  decode: [1, 2, 4, 8]\n  extend: [[16, 8], [64, 8], [256, 8]]\n"
        "  all_logits: []\n"
        "kv_cache:\n  page_size: 16\n  pages: 1025\n  host_pages: 0\n  dtype: float32\n"
        "limits:\n  max_model_len: 2048\n  max_batch: 8\n  token_budget: 256\n"
        "  steps_in_flight: 1\n"
        "kernels:\n  packs: []\n"
        "chat: {}\n"
    )


@pytest.mark.parametrize(
    ("parallel", "moe_tp", "moe_ep"),
    [("{world: 8}", 8, 1), ("{world: 8, moe_ep: 8}", 1, 8), ("{world: 8, moe_tp: 2}", 2, 4)],
)
def test_moe_sizes_fill_the_world(tmp_path: Path, parallel: str, moe_tp: int, moe_ep: int) -> None:
    sizes = load(write(tmp_path, MINIMAL + f"parallel: {parallel}\n")).parallel
    assert (sizes.moe_tp, sizes.moe_ep) == (moe_tp, moe_ep)


def test_resolved_text_names_no_machine(tmp_path: Path) -> None:
    texts: set[str] = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        texts.add(load(write(tmp_path / name, MINIMAL)).resolved())
    assert len(texts) == 1
    assert str(tmp_path) not in texts.pop()


def test_paths_are_relative_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, MINIMAL)
    monkeypatch.chdir(tmp_path.parent)
    recipe = load(Path(tmp_path.name) / "r.yaml")
    assert recipe.locate("x/y.json").resolve() == tmp_path / "x" / "y.json"
    assert recipe.locate("/x/y.json") == Path("/x/y.json")


def test_overrides_replace_add_and_remove(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + "kv_cache:\n  pages: 300\nlimits:\n  max_batch: 8\n")
    recipe = load(
        path,
        (
            "limits.max_batch=2",
            "buckets.extend=[[256, 2]]",
            "kv_cache.pages=null",
            "kv_cache.memory=1.5 GiB",
            "chat=false",
        ),
    )
    assert recipe.limits.max_batch == 2
    assert recipe.buckets.decode == (1, 2)
    assert recipe.buckets.extend == ((256, 2),)
    assert recipe.kv_cache.pages is None
    assert recipe.kv_cache.memory_bytes == 3 << 29
    assert recipe.chat is False


def test_an_override_is_named_as_the_place(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load(write(tmp_path, MINIMAL), ("parallel.attn_tp=2",))
    assert [p.where for p in caught.value.problems] == ["--set parallel.attn_tp"]
    assert "attn_tp 2 does not divide world 1" in str(caught.value)


def test_an_override_drops_what_was_wrong_below_it(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + "limits:\n  max_batch: 1\n  max_batch: 2\n")
    with pytest.raises(RecipeError, match="twice, first on line 5"):
        load(path)
    assert load(path, ("limits={max_batch: 4}",)).limits.max_batch == 4


@pytest.mark.parametrize("text", ["x", "=1", "a..b=1", "a.b=[", "name=\t- x"])
def test_a_malformed_override_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(OverrideError):
        load(write(tmp_path, MINIMAL), (text,))


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 << 30), ("512 MiB", 512 << 20), ("1.5GB", 1_500_000_000), ("100B", 100)],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_steps_in_flight_depend_on_the_device(tmp_path: Path) -> None:
    cuda = "target: {device: cuda, arch: sm_90, topology: h200-nvlink-8}\n"
    assert load(write(tmp_path, MINIMAL + cuda)).limits.steps_in_flight == 2
    given = MINIMAL + "limits: {steps_in_flight: 2}\n"
    assert load(write(tmp_path, given)).limits.steps_in_flight == 2


def test_host_memory_takes_the_place_of_host_pages(tmp_path: Path) -> None:
    cache = load(write(tmp_path, MINIMAL + "kv_cache: {host_memory: 2GiB}\n")).kv_cache
    assert (cache.host_pages, cache.host_memory_bytes) == (None, 2 << 30)
    cache = load(write(tmp_path, MINIMAL + "kv_cache: {host_pages: 7}\n")).kv_cache
    assert (cache.host_pages, cache.host_memory_bytes) == (7, None)


def test_memory_becomes_pages(tmp_path: Path) -> None:
    small = MINIMAL + "limits: {max_model_len: 100}\nkv_cache: {memory: 1MiB}\n"
    recipe = load(write(tmp_path, small))
    assert kv_pages(recipe, 1 << 17) == 8
    assert kv_pages(load(write(tmp_path, MINIMAL)), 1 << 40) == 1025
    with pytest.raises(RecipeError, match=r"4 pages of 16 tokens, .* hold 48") as caught:
        kv_pages(recipe, 1 << 18)
    assert "lower limits.max_model_len to 48" in str(caught.value)
    with pytest.raises(RecipeError, match="less than two pages"):
        kv_pages(recipe, 1 << 20)


def test_group_sizes_are_checked_against_the_heads(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    recipe = load(path, ("parallel.world=2",))
    check_parallel(recipe, ())
    problems = (
        SizeProblem("attn_tp", "attn_tp = 2 does not divide 9 attention heads", "legal: 1, 3"),
        SizeProblem("moe_ep", "moe_ep = 2 does not divide 5 experts", "legal: 1, 5"),
    )
    with pytest.raises(RecipeError) as caught:
        check_parallel(recipe, problems)
    where = [problem.where for problem in caught.value.problems]
    assert [place.split()[-1] for place in where] == ["parallel.attn_tp", "parallel.moe_ep"]
    assert [p.message for p in caught.value.problems] == [p.message for p in problems]
    assert "legal: 1, 3" in str(caught.value)


def test_model_length_is_checked_against_the_positions(tmp_path: Path) -> None:
    recipe = load(write(tmp_path, MINIMAL))
    check_model_length(recipe, 2048)
    with pytest.raises(RecipeError, match=r"max_model_len 2048 is beyond .* 1024"):
        check_model_length(recipe, 1024)


def test_the_table_in_the_docs_is_generated_from_the_models() -> None:
    assert (ROOT / "docs/recipe.md").read_text() == render()


def test_every_key_is_documented() -> None:
    assert {key.path for key in all_keys()} > {"name", "model.source", "chat.template"}
    assert [key.path for key in all_keys() if not key.meaning or "  " in key.meaning] == []
