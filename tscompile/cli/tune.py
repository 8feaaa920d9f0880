"""`tscompile tune`: measure a recipe's products on this machine's GPU, and write a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tscompile.cli.progress import activity, progress_bar
from tscompile.deployment import compile_recipe
from tscompile.recipe import load
from tscompile.tune import measured_on, products, tuned
from tskernels.tuning.table import Entry, parse, text


@click.command()
@click.argument("recipes", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The table's file.")
def tune(recipes: tuple[Path, ...], out: Path) -> None:
    """Measure every product of few rows in RECIPES, and keep the fastest block sizes in a table.

    The table belongs into tskernels/tuning/<arch>.json; entries that are in OUT already stay
    unless they are measured again.
    """
    entries = dict(parse(out.read_text(encoding="utf-8"))) if out.is_file() else {}
    with activity("compiling"):
        plans = [compile_recipe(load(recipe, ())).result.plan for recipe in recipes]
    gpu = measured_on(plans[0].target)
    wanted = {product.key: product for plan in plans for product in products(plan)}
    with progress_bar("measuring", len(wanted)) as progress:
        inorder = [product for _, product in sorted(wanted.items())]
        for product, best, microseconds in tuned(inorder, plans[0].target.arch):
            progress(product.key)
            entries[product.key] = Entry(asdict(best), microseconds)
            out.write_text(text(gpu, entries), encoding="utf-8")
            click.echo(f"{product.key}: {microseconds:.2f} us {asdict(best)}")
