"""Progress of what takes longer than two seconds; silent where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

STDERR = Console(stderr=True)
"""Progress stands on stderr and only in a terminal; elsewhere nothing is printed."""


@contextmanager
def activity(title: str, console: Console = STDERR) -> Generator[None]:
    """Say what is going on while the block runs, for work whose steps cannot be counted."""
    if not console.is_terminal:
        yield
        return
    with console.status(title):
        yield


@contextmanager
def progress_bar(
    title: str, total: int, console: Console = STDERR
) -> Generator[Callable[[str], None]]:
    """A function to call once for each of `total` items, with its name."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.fields[item]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=total, item="")
        yield lambda item: bar.update(task, advance=1, item=item)
