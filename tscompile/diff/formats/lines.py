"""The lines that text and Markdown share: one for each distinct change, with where it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tscompile.communication.groups import program_names, ranges
from tscompile.communication.numbers import shape_text
from tscompile.communication.units import bytes_text, percent, time_text
from tscompile.diff.changes import (
    CollectiveChange,
    Diff,
    Kind,
    LoadChange,
    PlacementChange,
    Rename,
    Side,
)

MARKS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~", Kind.MOVED: ">"}
"""How a line about a collective begins."""

_NAMED = 4
"""Names that a line lists before it only counts."""


def settings(diff: Diff) -> Iterator[str]:
    """All of them on one line."""
    if diff.settings:
        shown = (f"{s.key} {s.before or 'none'} -> {s.after or 'none'}" for s in diff.settings)
        yield ", ".join(shown)


def renames(diff: Diff) -> Iterator[str]:
    """Renamed modules, those with a common part together."""
    groups: dict[tuple[str, str], int] = {}
    for rename in diff.renames:
        stem = _stems(rename)
        groups[stem] = groups.get(stem, 0) + 1
    for (before, after), count in groups.items():
        yield f"{before} -> {after}" + (f" ({count} names)" if count > 1 else "")


def _stems(rename: Rename) -> tuple[str, str]:
    """Both names without the words that they end in alike."""
    before, after = rename.before.split("."), rename.after.split(".")
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        before.pop()
        after.pop()
    return ".".join(before), ".".join(after)


def collectives(diff: Diff) -> Iterator[str]:
    """Each collective that is not as it was; the same change in several places on one line."""
    groups: dict[str, list[CollectiveChange]] = {}
    for change in diff.collectives:
        groups.setdefault(_what(change), []).append(change)
    for what, changes in groups.items():
        yield f"{what} in {'; '.join(_where(diff, change) for change in changes)}"


def _what(change: CollectiveChange) -> str:
    names = {"from": change.module or "(layer)", "to": change.to or "(layer)"}
    name = names["to"] if change.module == change.to else f"{names['from']} -> {names['to']}"
    sides = [_side(change, side) for side in (change.before, change.after) if side is not None]
    return f"{MARKS[change.kind]} {name}: {' -> '.join(dict.fromkeys(sides))}"


def _side(change: CollectiveChange, side: Side) -> str:
    shape = shape_text(side.shapes, change.buckets)
    note = f" {side.note}" if side.note else ""
    return f"{side.op}{note} over {side.group} {side.dtype}{shape}"


def _where(diff: Diff, change: CollectiveChange) -> str:
    programs = program_names(change.programs, diff.programs)
    if change.layers == change.to_layers:
        return f"{programs}{_layers(change.layers)}"
    return f"{programs}{_layers(change.layers)} ->{_layers(change.to_layers) or ' outside'}"


def _layers(layers: Sequence[int]) -> str:
    return f" layers {ranges(layers)}" if layers else ""


def loads(diff: Diff) -> Iterator[str]:
    """A line for each program whose step is not as it was."""
    for change in diff.loads:
        yield f"{change.program}: {', '.join(_load(diff, change))}"


def _load(diff: Diff, change: LoadChange) -> Iterator[str]:
    before, after = change.before, change.after
    if before is None or after is None:
        there = before or after
        assert there is not None
        word = "removed" if after is None else "added"
        yield f"{word}, {time_text(there.picoseconds)}, {bytes_text(there.wire)} sent"
        return
    yield _from_to(before.picoseconds, after.picoseconds, time_text)
    if before.wire != after.wire:
        yield _from_to(before.wire, after.wire, bytes_text) + " sent"
    if len(before.levels) == len(after.levels) > 1:
        pairs = zip(diff.links[1], before.levels, after.levels, strict=True)
        yield from (f"{_from_to(a, b, bytes_text)} {name}" for name, a, b in pairs if a != b)
    if before.collectives != after.collectives:
        yield f"{before.collectives} -> {after.collectives} collectives"


def _from_to(before: int, after: int, text: Callable[[float], str]) -> str:
    return f"{text(before)} -> {text(after)} ({percent(before, after)})"


def kernels(diff: Diff) -> Iterator[str]:
    """What runs instead of what, with the modules that it holds for."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    programs: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for change in diff.kernels:
        key = (change.before, change.after)
        where = f"{change.module or '(layer)'}{_layers(change.layers)}"
        groups.setdefault(key, []).append(where)
        programs.setdefault(key, []).extend(change.programs)
    for (before, after), modules in groups.items():
        old, new = (" + ".join(side) or "nothing" for side in (before, after))
        ran = [name for name in diff.programs if name in programs[before, after]]
        shown = program_names(ran, diff.programs)
        yield f"{old} -> {new}: {_listed(modules)} in {shown}"


def memory(diff: Diff) -> Iterator[str]:
    """What takes more or less on a rank, on one line."""
    if diff.memory:
        parts = (f"{m.kind} {bytes_text(m.before)} -> {bytes_text(m.after)}" for m in diff.memory)
        yield f"{_from_to(*diff.held, bytes_text)} a rank: {', '.join(parts)}"


def placements(diff: Diff) -> Iterator[str]:
    """Weights and caches that lie otherwise, those with the same change together."""
    groups: dict[tuple[str, str], list[PlacementChange]] = {}
    for change in diff.placements:
        groups.setdefault((change.before, change.after), []).append(change)
    for (before, after), changes in groups.items():
        names = [change.name for change in changes]
        yield f"{before or 'absent'} -> {after or 'absent'}: {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _NAMED
    shown = ", ".join(distinct[:_NAMED])
    return shown if more <= 0 else f"{shown} and {more} more"


def summary(diff: Diff) -> str:
    """The whole comparison in one line."""
    if diff.is_empty:
        return "no difference"
    parts = [*_counted(diff), *_worst(diff)]
    before, after = diff.held
    if before != after:
        parts.append(f"memory {percent(before, after)}")
    if diff.kernels:
        parts.append("kernels change")
    if diff.placements:
        parts.append("placements change")
    return "; ".join(parts) or "nothing that is sent, run or held changes"


def _counted(diff: Diff) -> Iterator[str]:
    """Collectives of one step of the program in which most change."""
    for kind in Kind:
        counts = [
            sum(c.times for c in diff.collectives if c.kind is kind and program in c.programs)
            for program in diff.programs
        ]
        if most := max(counts, default=0):
            yield f"{most} collective{'s' if most > 1 else ''} {kind.value} a step"
    new = [c for c in diff.loads if c.before is None]
    gone = [c for c in diff.loads if c.after is None]
    if new:
        yield f"{len(new)} programs added"
    if gone:
        yield f"{len(gone)} programs removed"


def _worst(diff: Diff) -> Iterator[str]:
    """The largest changes of time and bytes."""
    both = [(c.before, c.after) for c in diff.loads if c.before is not None and c.after is not None]
    for word, pairs in (
        ("time", [(a.picoseconds, b.picoseconds) for a, b in both]),
        ("bytes", [(a.wire, b.wire) for a, b in both]),
    ):
        changes = sorted(
            ((b - a) / a if a else math.inf, percent(a, b)) for a, b in pairs if a != b
        )
        if changes:
            low, high = changes[0][1], changes[-1][1]
            yield f"{word} {low}" if low == high else f"{word} {low} to {high}"


TOPICS: Mapping[str, Callable[[Diff], Iterator[str]]] = {
    "setting": settings,
    "renamed": renames,
    "collective": collectives,
    "step": loads,
    "kernel": kernels,
    "memory": memory,
    "placement": placements,
}
"""What there are lines about, in the order in which they print."""
