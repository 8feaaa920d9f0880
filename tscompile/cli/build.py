"""`tscompile build`: a recipe becomes a frozen artifact."""

from __future__ import annotations

from pathlib import Path

import click

from tscompile.cli.progress import activity, progress_bar
from tscompile.deployment import compile_recipe
from tscompile.freeze.budget import check_budget
from tscompile.freeze.freeze import freeze
from tscompile.freeze.kernels import freeze_kernels
from tscompile.ir.request import PolicyName
from tscompile.recipe import load
from tsruntime.artifact.weight_files import stored_weights


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Default: artifacts/<name>.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option(
    "--dump-plans",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the plan after each pass into this folder.",
)
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in PolicyName]),
    default=PolicyName.OURS.value,
    help="Communicate as a peer would; for comparisons.",
)
def build(
    recipe: Path,
    out: Path | None,
    overrides: tuple[str, ...],
    dump_plans: Path | None,
    policy: str,
) -> None:
    """Build the deployment that RECIPE describes."""
    loaded = load(recipe, overrides)
    with activity("compiling and checking the checkpoint"):
        deployment = compile_recipe(loaded, dump_plans, PolicyName(policy))
    with activity("compiling kernels"):
        kernels = freeze_kernels(deployment.result.plan, deployment.packs)
    if kernels is not None:
        check_budget(deployment.result.plan, kernels.launches)
    destination = out or Path("artifacts") / loaded.name
    stored = stored_weights(deployment.result.plan)
    with progress_bar("writing weights", len(stored)) as progress:
        manifest = freeze(deployment, kernels, destination, progress)
    size = sum(entry.bytes for entry in manifest.files.values())
    click.echo(f"{destination}  {size / 1e6:,.1f} MB  {manifest.digest[:16]}")
