"""`tscompile simulate`: run an artifact's plan on all its ranks here, against the model."""

from __future__ import annotations

from pathlib import Path

import click

from tscompile.simulate.shrink import shrink
from tscompile.simulate.simulate import TOLERANCE
from tscompile.simulate.simulate import simulate as run
from tsruntime.artifact.load import load_plan
from tsruntime.artifact.proof.load import load_certificate


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--shrink", "small", is_flag=True, help="Use the smallest sizes that divide alike.")
@click.option("--rounds", default=2, show_default=True, help="Runs of each program.")
@click.option("--seed", default=0, show_default=True, help="Of the weights and the batches.")
def simulate(artifact: Path, small: bool, rounds: int, seed: int) -> None:
    """Run every program of ARTIFACT on all ranks in float64, and compare every value.

    Weights are random, the batches too: some replicas idle, padding is NaN.
    """
    plan, certificate = load_plan(artifact), load_certificate(artifact)
    if small:
        plan, certificate = shrink(plan, certificate)
    for report in run(plan, certificate, seed=seed, rounds=rounds):
        click.echo(
            f"{report.program}: {report.values} values of {plan.mesh.world} ranks compared in "
            f"{report.runs} runs, largest difference {report.worst.error:.1e} "
            f"({report.worst.value})"
        )
    click.echo(f"{artifact}: every value is within {TOLERANCE:.0e} of the unsharded one")
