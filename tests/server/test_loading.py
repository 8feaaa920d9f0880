"""Waiting for the engine: silent, but for a terminal that waits for long."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from tsruntime.server.loading import load_intake, ready_frontend


class Terminal(io.StringIO):
    """Standard error that is a terminal, or says that it is none."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def shown_while_loading(
    artifact: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal, quiet: float
) -> str:
    """What is written while an engine loads for 0.4 s, if the first `quiet` seconds are silent."""
    monkeypatch.setattr("tsruntime.server.loading._QUIET_SECONDS", quiet)
    monkeypatch.setattr("sys.stderr", terminal)
    engine = FakeEngine(ready=False)

    async def load() -> None:
        asyncio.get_running_loop().call_later(0.4, engine.become_ready)
        async with ready_frontend(engine, load_intake(artifact, None)):
            pass

    try:
        asyncio.run(load())
    finally:
        engine.stop(0)
    return terminal.getvalue()


def test_a_terminal_is_told_what_it_waits_for(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "loading tiny" in shown_while_loading(artifact, monkeypatch, Terminal(True), 0.05)


def test_a_short_wait_is_silent(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_while_loading(artifact, monkeypatch, Terminal(True), 60) == ""


def test_what_is_no_terminal_stays_silent(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_while_loading(artifact, monkeypatch, Terminal(False), 0.0) == ""
