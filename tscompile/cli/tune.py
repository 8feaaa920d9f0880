"""`tscompile tune`: measure block sizes for recipes on this machine's GPU, and write a table."""

from __future__ import annotations

from pathlib import Path

import click

from tscompile.cli.progress import activity, progress_bar
from tscompile.deployment import compile_recipe
from tscompile.recipe import load
from tscompile.tune import compile_options, fastest, measured_on, problems
from tskernels.tuning.measure import Stopwatch
from tskernels.tuning.table import parse, text


@click.command()
@click.argument("recipes", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), help="The table's file.")
@click.option(
    "--cubins",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of compiled candidates: what is there is not compiled again.",
)
@click.option("--only", multiple=True, help="Only keys that have one of these in them.")
def tune(recipes: tuple[Path, ...], out: Path | None, cubins: Path, only: tuple[str, ...]) -> None:
    """Measure the products of few rows and the attention of RECIPES; the fastest go into a table.

    It belongs into tskernels/tuning/<arch>.json. Entries that are in OUT already stay unless they
    are measured again. Without OUT candidates are only compiled, which takes no GPU: do that with
    the Triton that builds artifacts, and carry the folder to the GPU.
    """
    with activity("compiling plans"):
        plans = [compile_recipe(load(recipe, ())).result.plan for recipe in recipes]
    target = plans[0].target
    found = {key: problem for plan in plans for key, problem in problems(plan).items()}
    wanted = [found[key] for key in sorted(found) if not only or any(o in key for o in only)]
    gpu = "" if out is None else measured_on(target)
    watch = None if out is None else Stopwatch(target.arch)
    entries = dict(parse(out.read_text(encoding="utf-8"))) if out and out.is_file() else {}
    with progress_bar("tuning", len(wanted)) as progress:
        for problem, compiled in compile_options(wanted, target.arch, cubins):
            progress(problem.key)
            if out is None or watch is None:
                continue
            entry = entries[problem.key] = fastest(problem, compiled, watch)
            out.write_text(text(gpu, entries), encoding="utf-8")
            click.echo(f"{problem.key}: {entry.microseconds:.2f} us {dict(entry.config)}")
