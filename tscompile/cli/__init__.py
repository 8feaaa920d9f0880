"""The `tscompile` command: one file a subcommand."""

from __future__ import annotations

from tscompile.cli.main import main

__all__ = ["main"]
