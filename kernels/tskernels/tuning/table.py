"""Tuning tables: `<arch>.json` beside this module, read once.

{"gpu": name, "entries": {key: {"config": {field: value}, "microseconds": time}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Entry:
    """The fastest configuration that was measured, and its time of one launch."""

    config: Mapping[str, int]
    microseconds: float


@cache
def table(arch: str) -> Mapping[str, Entry]:
    """Entries by key for `arch`; none where nothing was measured."""
    path = FOLDER / f"{arch}.json"
    if not path.is_file():
        return {}
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> Mapping[str, Entry]:
    """The entries of a table's text."""
    entries: Mapping[str, Mapping[str, object]] = json.loads(text)["entries"]
    return {key: Entry(**fields) for key, fields in entries.items()}  # pyright: ignore[reportArgumentType]


def text(gpu: str, entries: Mapping[str, Entry]) -> str:
    """A table's text, sorted by key, an entry a line."""
    lines = [
        f"    {json.dumps(key)}: "
        + json.dumps({"config": dict(entry.config), "microseconds": round(entry.microseconds, 2)})
        for key, entry in sorted(entries.items())
    ]
    body = ",\n".join(lines)
    return f'{{\n  "gpu": {json.dumps(gpu)},\n  "entries": {{\n{body}\n  }}\n}}\n'
