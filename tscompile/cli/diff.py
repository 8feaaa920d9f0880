"""`tscompile diff`: what changes between two deployments, and rules that fail a build."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from tscompile.cli.progress import activity
from tscompile.diff.compare import compare
from tscompile.diff.formats.html import as_html
from tscompile.diff.formats.json import as_json
from tscompile.diff.formats.markdown import as_markdown
from tscompile.diff.formats.text import as_text
from tscompile.diff.report import Report
from tscompile.diff.rules import Rule, RuleSyntaxError, fired, parse_rule
from tscompile.diff.sources import read_side

FORMATS: Mapping[str, Callable[[Report], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "html": as_html,
}

EXIT_FIRED = 3
"""Exit code where a rule fired."""


def _rules(
    _: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[Rule, ...]:
    try:
        return tuple(parse_rule(text) for text in texts)
    except RuleSyntaxError as error:
        raise click.BadParameter(str(error), param=parameter) from None


@click.command()
@click.argument("before")
@click.argument("after")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="text", help="Of what is printed."
)
@click.option(
    "--out",
    type=(click.Choice(list(FORMATS)), click.Path(path_type=Path, dir_okay=False)),
    multiple=True,
    metavar="FORMAT FILE",
    help="Write that format to a file, too.",
)
@click.option(
    "--fail-on",
    "rules",
    multiple=True,
    metavar="RULE",
    callback=_rules,
    help="Exit with 3 where it holds: bytes>+5%, time>+2%, collectives>0, memory>+1GiB, "
    "kernel-change.",
)
def diff(
    before: str,
    after: str,
    form: str,
    out: tuple[tuple[str, Path], ...],
    rules: tuple[Rule, ...],
) -> None:
    """Print what changes from BEFORE to AFTER.

    Each is an artifact, a plan file, a recipe, or git:REV:recipes/x.yaml: the recipe as it was at
    a revision, compiled by this version.
    """
    with activity(f"comparing {before} with {after}"):
        old, new = read_side(before), read_side(after)
        found = compare(old, new)
    report = Report((before, after), old, new, found, fired(rules, found))
    for name, path in out:
        path.write_text(FORMATS[name](report), encoding="utf-8")
    click.echo(FORMATS[form](report), nl=False)
    for rule in report.fired:
        click.echo(f"fired {rule.rule}: {rule.reason}", err=True)
    if report.fired:
        sys.exit(EXIT_FIRED)
