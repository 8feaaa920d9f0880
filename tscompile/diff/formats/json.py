"""A comparison as JSON: every field of `Diff`, nothing rounded, nothing left out."""

from __future__ import annotations

import json
from dataclasses import asdict

from tscompile.diff.formats.lines import summary
from tscompile.diff.report import Report


def as_json(report: Report) -> str:
    """One object: `titles`, `summary`, `fired`, and `diff` as `tscompile.diff.changes` has it."""
    data = {
        "titles": report.titles,
        "summary": summary(report.diff),
        "empty": report.diff.is_empty,
        "fired": [asdict(rule) for rule in report.fired],
        "diff": asdict(report.diff),
    }
    return json.dumps(data, indent=2) + "\n"
