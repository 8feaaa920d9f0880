"""Progress: shown in a terminal, silent elsewhere."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from tscompile.cli.progress import activity, progress_bar


def shown(terminal: bool) -> str:
    stream = StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100)
    with activity("thinking hard", console):
        pass
    with progress_bar("writing", 2, console) as progress:
        progress("first.weight")
        progress("second.weight")
    return stream.getvalue()


def test_a_terminal_shows_what_is_going_on() -> None:
    text = shown(terminal=True)
    assert "thinking hard" in text
    assert "second.weight" in text
    assert "2/2" in text


def test_elsewhere_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(terminal=False) == ""
    assert capsys.readouterr() == ("", "")
