"""A comparison as the comment on a pull request: the summary first, details folded away."""

from __future__ import annotations

from collections.abc import Iterator

from tscompile.diff.formats.lines import TOPICS, summary
from tscompile.diff.report import Report

MARKER = "<!-- tscompile diff -->"
"""First line of every such comment, by which the workflow finds it again."""


def as_markdown(report: Report) -> str:
    """The section about one deployment, without the marker: a comment may hold several."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    diff = report.diff
    name = diff.after if diff.before == diff.after else f"{diff.before} → {diff.after}"
    yield f"### `{name}`: {summary(diff)}"
    yield ""
    for rule in report.fired:
        yield f"- ❌ **`{rule.rule}`** {rule.reason}"
    if report.fired:
        yield ""
    if diff.is_empty:
        return
    rows = [(word, list(lines(diff))) for word, lines in TOPICS.items()]
    yield "<details><summary>what changes</summary>"
    yield ""
    yield "```diff"
    for word, lines in rows:
        if lines:
            yield f"@@ {word} @@"
            yield from (_marked(line) for line in lines)
    yield "```"
    yield ""
    yield "</details>"


def _marked(line: str) -> str:
    """Lines of collectives carry their own mark, in which GitHub's colours are + and -."""
    return line if line[:2] in ("+ ", "- ") else f"! {line.removeprefix('~ ')}"
