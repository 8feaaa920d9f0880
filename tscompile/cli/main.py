"""Entry point: the command group, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from tskernels.errors import TsError

COMMANDS: Final[Mapping[str, str]] = {
    "build": "Build the deployment that a recipe describes.",
    "check": "Verify an artifact without running it.",
    "diff": "Print what changes between two deployments, and fail by rules.",
    "explain": "Print each choice of a program, its price, and its runner-up's.",
    "kernels": "List the kernels that may be pinned, or explain an artifact's pins.",
    "plan": "Print what a recipe's deployment communicates.",
    "simulate": "Run an artifact's plan on all its ranks here, against the model.",
    "size": "Print what a recipe needs of a rank, and what fits.",
    "tune": "Measure block sizes of kernels on this machine's GPU.",
    "weights": "Fill an artifact that travelled without its weights.",
}
"""Subcommands with their summaries; `tscompile.cli.<name>` defines a command of that name."""


class LazyGroup(click.Group):
    """Imports a subcommand only when it runs, so that `--help` does not wait for torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tscompile.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tscompile")
def commands() -> None:
    """Build LLM inference deployments ahead of time."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or `arguments`. Exit 1: it failed; 2: it was used wrongly.

    `diff` exits with 3 where a rule fired.
    """
    try:
        commands(arguments, prog_name="tscompile")
    except TsError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
