"""A comparison for a terminal: a word says what each line is about, the last line sums up."""

from __future__ import annotations

from tscompile.diff.formats.lines import TOPICS, summary
from tscompile.diff.report import Report


def as_text(report: Report) -> str:
    """The lines; of two equal plans only the last."""
    diff = report.diff
    rows = [(word, line) for word, lines in TOPICS.items() for line in lines(diff)]
    rows += [("fired", f"{rule.rule}: {rule.reason}") for rule in report.fired]
    rows.append(("summary", summary(diff)))
    width = max(len(word) for word, _ in rows)
    return "".join(f"{word:{width}}  {line}\n" for word, line in rows)
