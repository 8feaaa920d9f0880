"""`tscompile check`: verify an artifact without running it."""

from __future__ import annotations

from pathlib import Path

import click

from tscompile.cli.progress import activity
from tsruntime.artifact.load import verify
from tsruntime.artifact.manifest import read_manifest
from tsruntime.artifact.proof.load import prove


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--no-weights", is_flag=True, help="Do not read the weight files.")
def check(artifact: Path, no_weights: bool) -> None:
    """Verify every file of ARTIFACT, and prove that its plan computes the model it certifies."""
    with activity("verifying files and proving the plan"):
        verify(artifact, weights=not no_weights)
        prove(artifact)
    manifest = read_manifest(artifact)
    skipped = ", weights not read" if no_weights else ""
    click.echo(f"{artifact}: {len(manifest.files)} files intact, plan proven{skipped}")
