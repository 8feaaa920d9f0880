"""`tscompile tune`: measure block sizes for recipes on this machine's GPU, and write a table."""

from __future__ import annotations

from pathlib import Path

import click

from tscompile.cli.progress import activity, progress_bar
from tscompile.deployment import compile_recipe
from tscompile.recipe import load
from tscompile.tune import measured_on, problems, tuned
from tskernels.tuning.table import parse, text


@click.command()
@click.argument("recipes", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The table's file.")
def tune(recipes: tuple[Path, ...], out: Path) -> None:
    """Measure the products of few rows and the attention of RECIPES; the fastest go into a table.

    It belongs into tskernels/tuning/<arch>.json. Entries that are in OUT already stay unless they
    are measured again.
    """
    entries = dict(parse(out.read_text(encoding="utf-8"))) if out.is_file() else {}
    with activity("compiling"):
        plans = [compile_recipe(load(recipe, ())).result.plan for recipe in recipes]
    target = plans[0].target
    gpu = measured_on(target)
    wanted = {key: problem for plan in plans for key, problem in problems(plan).items()}
    with progress_bar("measuring", len(wanted)) as progress:
        for key, entry in tuned([wanted[key] for key in sorted(wanted)], target.arch):
            progress(key)
            entries[key] = entry
            out.write_text(text(gpu, entries), encoding="utf-8")
            click.echo(f"{key}: {entry.microseconds:.2f} us {dict(entry.config)}")
