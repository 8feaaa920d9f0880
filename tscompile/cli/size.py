"""`tscompile size`: what a deployment needs of a rank, for choosing hardware."""

from __future__ import annotations

from pathlib import Path

import click

from tscompile.cli.progress import activity
from tscompile.communication.compiled import planned_request
from tscompile.cost.topology import find_topology
from tscompile.deployment import requested
from tscompile.ir.request import CompileRequest
from tscompile.recipe import load
from tscompile.recipe.kv_cache import parse_bytes
from tscompile.recipe.section import RefusalError
from tscompile.size.fit import Need, attempts, room, state_bytes
from tscompile.size.text import count_lines, held_lines, room_lines
from tscompile.size.weights import Weighed


def _capacity(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_bytes(text)
    except RefusalError as error:
        raise click.BadParameter(f"{error.message}: {error.remedy}", param=parameter) from None


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option(
    "--capacity",
    callback=_capacity,
    metavar="SIZE",
    help="Memory of a device, such as 72GB, instead of the topology's.",
)
def size(recipe: Path, overrides: tuple[str, ...], capacity: int | None) -> None:
    """Print what RECIPE needs of a rank, what fits beside it, and how few GPUs would do."""
    request = requested(load(recipe, overrides))
    limit = capacity or find_topology(request.target.topology).capacity
    with activity(f"planning {request.name}"):
        plan = planned_request(request)
    positions = request.model.max_positions
    state = state_bytes(request)
    for line in held_lines(plan, limit, state):
        click.echo(line)
    if limit is None:
        click.echo(f"how much a device of {request.target.topology} has is not known: --capacity")
        return
    for line in room_lines(plan, room(plan, limit, positions, state), positions):
        click.echo(line)
    limits = request.limits
    weighed = Weighed.of(request.model, request.dtype)
    for batch in dict.fromkeys((limits.max_batch, 1)):
        _count(request, weighed, Need(batch, limits.max_model_len), capacity)


def _count(request: CompileRequest, weighed: Weighed, need: Need, capacity: int | None) -> None:
    with activity("searching the smallest count"):
        tried = list(attempts(request, weighed, need, capacity))
    for line in count_lines(need, tried):
        click.echo(line)
