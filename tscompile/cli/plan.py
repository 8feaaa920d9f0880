"""`tscompile plan`: what a deployment communicates, or whether the golden plans still hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from tscompile.cli.progress import activity, progress_bar
from tscompile.communication.compiled import planned
from tscompile.communication.errors import GoldenError
from tscompile.communication.goldens import (
    RECIPES,
    Stale,
    check_presence,
    golden_path,
    recipes_of,
    stale,
)
from tscompile.communication.summary import summary
from tscompile.diff.compare import compare
from tscompile.diff.formats.text import as_text
from tscompile.diff.report import Report
from tscompile.recipe import load


@click.command()
@click.argument("recipes", nargs=-1, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Compare the golden plans (default: of recipes/).")
@click.option("--kernels", is_flag=True, help="List every kernel, not just the fused ones.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
def plan(recipes: tuple[Path, ...], check: bool, kernels: bool, overrides: tuple[str, ...]) -> None:
    """Print the communication plan of a recipe: collectives and fusions of every program.

    With --check, compare what RECIPES compile to with their golden plans, artifacts/NAME.plan.
    """
    if check:
        if kernels or overrides:
            raise click.UsageError("--check takes recipes, and neither --kernels nor --set")
        _check(recipes)
        return
    if len(recipes) != 1:
        raise click.UsageError("give one recipe, or --check")
    recipe = load(recipes[0], overrides)
    with activity(f"planning {recipe.name}"):
        text = summary(planned(recipe), kernels=kernels)
    click.echo(text, nl=False)


def _check(given: Sequence[Path]) -> None:
    recipes = list(given) or recipes_of(RECIPES)
    if not recipes:
        raise click.UsageError(f"there is no recipe in {RECIPES}")
    check_presence(recipes, every=not given)
    found: list[Stale] = []
    with progress_bar("comparing golden plans", len(recipes)) as progress:
        for recipe, one in _compared(recipes):
            progress(recipe.stem)
            found += [] if one is None else [one]
    for one in found:
        _show(one)
    if found:
        names = ", ".join(str(golden_path(one.recipe)) for one in found)
        raise GoldenError(
            f"{len(found)} of {len(recipes)} golden plans do not hold: {names}",
            remedy="if the change is wanted, run `make golden` and commit it",
        )
    click.echo(f"{len(recipes)} golden plans hold")


def _compared(recipes: Sequence[Path]) -> Iterator[tuple[Path, Stale | None]]:
    """Each recipe against its golden, on every core."""
    workers = min(len(recipes), len(os.sched_getaffinity(0)))
    if workers == 1:
        yield from ((recipe, stale(recipe)) for recipe in recipes)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from zip(recipes, pool.map(stale, recipes), strict=True)


def _show(one: Stale) -> None:
    """What the recipe's plan has differently from its golden."""
    titles = (str(golden_path(one.recipe)), str(one.recipe))
    report = Report(titles, one.before, one.after, compare(one.before, one.after))
    click.echo(f"{titles[0]} -> {titles[1]}", file=sys.stderr)
    click.echo(as_text(report), nl=False, file=sys.stderr)
