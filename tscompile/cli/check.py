"""`tscompile check`: verify an artifact without running it."""

from __future__ import annotations

from pathlib import Path

import click

from tsruntime.artifact.check import check_plan
from tsruntime.artifact.load import load_plan, verify
from tsruntime.artifact.manifest import read_manifest


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--no-weights", is_flag=True, help="Do not read the weight files.")
def check(artifact: Path, no_weights: bool) -> None:
    """Verify every file of ARTIFACT, and that its plan obeys the rules it runs by."""
    verify(artifact, weights=not no_weights)
    check_plan(load_plan(artifact))
    manifest = read_manifest(artifact)
    skipped = ", weights not read" if no_weights else ""
    click.echo(f"{artifact}: {len(manifest.files)} files intact, plan valid{skipped}")
