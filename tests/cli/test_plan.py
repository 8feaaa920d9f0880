"""`tscompile plan`: what it prints, and whether golden plans hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deployments import ROOT, Run

from tscompile.communication import goldens, recipes
from tscompile.communication.parser import parse_golden
from tscompile.communication.summary import summary


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tiny recipes with their golden plans; the folder of the recipes."""
    made = tmp_path / "recipes"
    (made / "configs").mkdir(parents=True)
    shutil.copy(ROOT / "recipes/configs/llama-tiny.json", made / "configs")
    text = (ROOT / "recipes/llama-tiny-dummy.yaml").read_text()
    (made / "one.yaml").write_text(text)
    (made / "two.yaml").write_text(
        text.replace("device: cpu", "device: cpu\nparallel:\n  world: 2")
    )
    goldens.main(made)
    return made


def test_it_prints_collectives_fusions_and_times(tscompile: Run) -> None:
    recipe = ROOT / "recipes/llama-tiny-dummy.yaml"
    done = tscompile("plan", recipe, "--set", "parallel.world=2", "--set", "dtype=float32")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("llama-tiny-dummy: LlamaForCausalLM float32 on cpu")
    rows = [line.split() for line in lines if line.startswith("  self_attn.o_proj")]
    assert rows
    assert rows[0][1:4] == ["all_reduce_add_rms_norm", "a(2)", "f32[T,96]"]
    assert rows[0][-1] == "us"
    assert any(line.startswith("  mlp") and "linear_silu_mul" in line for line in lines)


def test_one_recipe_or_a_check(tscompile: Run) -> None:
    assert tscompile("plan").code == 2
    assert tscompile("plan", "a.yaml", "b.yaml").code == 2
    assert tscompile("plan", "--check", "--kernels").code == 2


def test_goldens_hold_until_a_recipe_changes(tscompile: Run, folder: Path) -> None:
    recipes_there = sorted(folder.glob("*.yaml"))
    done = tscompile("plan", "--check", *recipes_there)
    assert (done.code, done.out) == (0, "2 golden plans hold\n"), done.err
    two = folder / "two.yaml"
    two.write_text(two.read_text().replace("pages: 65", "pages: 130"))
    done = tscompile("plan", "--check", *recipes_there)
    assert done.code == 1
    assert "pages 65 -> 130" in done.err
    assert "1 of 2 golden plans do not hold" in done.err
    assert "make golden" in done.err


def test_a_golden_too_many_or_too_few_is_named(
    tscompile: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder / "one.yaml").rename(folder / "three.yaml")
    done = tscompile("plan", "--check")
    assert done.code == 1
    assert "no artifacts/three.plan" in done.err
    assert "no recipe for artifacts/one.plan" in done.err


def test_every_recipe_that_ships_has_its_golden_and_its_row() -> None:
    goldens.check_presence(goldens.recipes_of(ROOT / "recipes"), every=True)
    assert (ROOT / "recipes/README.md").read_text() == recipes.render(ROOT / "recipes")


def test_golden_plans_of_every_recipe_hold(tscompile: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = tscompile("plan", "--check")
    assert done.code == 0, done.err


RECIPES = goldens.recipes_of(ROOT / "recipes")


@pytest.mark.parametrize("recipe", RECIPES, ids=[path.stem for path in RECIPES])
def test_a_recipe_is_planned_within_a_screen(recipe: Path) -> None:
    golden = goldens.golden_path(recipe)
    plan = parse_golden(golden.read_text(), str(golden))
    assert plan.name == recipe.stem
    lines = summary(plan).splitlines()
    assert len(lines) <= 60
    assert all(program.name in "\n".join(lines) for program in plan.programs)


def test_a_cache_that_leaves_no_room_for_the_rest_is_refused(tscompile: Run) -> None:
    """16.4 GB of weights and 124 of KV cache fit 141, but not the driver and the draws beside."""
    recipe = ROOT / "recipes/qwen3-8b.yaml"
    assert tscompile("plan", recipe, "--set", "kv_cache.memory=123GB").code == 0
    refused = tscompile("plan", recipe, "--set", "kv_cache.memory=124GB")
    assert refused.code == 1
    assert "TS0315" in refused.err
    assert "125.15 GB of KV cache and state" in refused.err
