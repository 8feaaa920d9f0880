"""`tscompile weights`: fill an artifact that travelled without its weights."""

from __future__ import annotations

from pathlib import Path

import click

from tscompile.checkpoint import check_tensors, open_weights
from tscompile.cli.progress import progress_bar
from tscompile.deployment import quantized_tensors, source_shapes
from tscompile.freeze.refill import refill
from tscompile.models.config import from_hf
from tsruntime.artifact.load import load_plan, verify
from tsruntime.artifact.weight_files import stored_weights


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--from", "source", required=True, metavar="CHECKPOINT", help="As in model.source.")
def weights(artifact: Path, source: str) -> None:
    """Write the weights of ARTIFACT from CHECKPOINT; they must have the digests it seals."""
    verify(artifact, weights=False)
    plan = load_plan(artifact)
    checkpoint, expected = open_weights(source), source_shapes(plan)
    tied = "lm_head.weight" not in expected
    drafts = from_hf(checkpoint.config).drafts
    check_tensors(
        checkpoint,
        expected,
        tied=tied,
        drafts=drafts,
        where=source,
        quantized=quantized_tensors(plan),
    )
    with progress_bar("writing weights", len(stored_weights(plan))) as progress:
        refill(artifact, plan, checkpoint, progress)
    click.echo(f"{artifact}: weights filled")
