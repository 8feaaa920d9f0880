"""`tscompile explain`: why a program does what it does, and what the next best would cost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tscompile.cli.progress import activity
from tscompile.cost.model import CostModel
from tscompile.cost.topology import find_topology
from tscompile.deployment import requested
from tscompile.explain.runners_up import choices
from tscompile.explain.text import explained
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.request import CompileRequest, PolicyName
from tscompile.passes.pipeline import where_alike
from tscompile.recipe import load
from tscompile.search.segment import Tables


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--program", "name", help="Default: the largest decode program.")
@click.option("--module", default="", help="Only choices of modules whose path has this in it.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in PolicyName]),
    default=PolicyName.OURS.value,
    help="Whose communication to explain.",
)
def explain(
    recipe: Path, name: str | None, module: str, overrides: tuple[str, ...], policy: str
) -> None:
    """Print each choice of one program of RECIPE, its price, and its runner-up's."""
    request = requested(load(recipe, overrides))
    lines = where_alike(request, partial(_lines, request, name, module, PolicyName(policy)))
    click.echo("\n".join(lines))


def _lines(
    request: CompileRequest, name: str | None, module: str, policy: PolicyName, draft: Draft
) -> list[str]:
    """What is printed of a draft that may be folded: it is of the whole model."""
    program = _program(draft, name)
    tables = Tables(CostModel(find_topology(request.target.topology), draft.mesh.axes))
    with activity(f"searching {program.name}"):
        best, found = choices(draft, program, tables, policy)
    shown = [choice for choice in found if module in choice.module]
    return [*explained(draft.mesh, program.name, best, shown)]


def _program(draft: Draft, name: str | None) -> DraftProgram:
    programs = {program.name: program for program in draft.programs}
    if name is None:
        return max((p for p in draft.programs if p.phase.value == "decode"), key=lambda p: p.tokens)
    if name not in programs:
        raise click.UsageError(f"there is no program {name}: {', '.join(programs)}")
    return programs[name]
