"""Progress of what takes longer than two seconds; silent where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(title: str, total: int) -> Generator[Callable[[str], None]]:
    """A function to call once for each of `total` items, with its name.

    The bar stands on stderr and only in a terminal; elsewhere nothing is printed.
    """
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.fields[item]}"),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=total, item="")
        yield lambda item: bar.update(task, advance=1, item=item)
