"""The lines that text and Markdown share: one for each distinct change, with where it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tscompile.communication.groups import program_names, ranges
from tscompile.communication.numbers import Bucket, shape_text
from tscompile.communication.units import bytes_text, percent, time_text
from tscompile.diff.changes import (
    CollectiveChange,
    Diff,
    KernelChange,
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
    """Each collective that is not as it was; the same change of several modules on one line."""
    groups: dict[object, list[CollectiveChange]] = {}
    for change in diff.collectives:
        groups.setdefault(_alike(change), []).append(change)
    texts: dict[str, list[str]] = {}
    for changes in groups.values():
        places = "; ".join(_where(diff, change) for change in changes)
        what = f"{MARKS[changes[0].kind]} {_what(changes)}"
        texts.setdefault(what, []).append(f"{_name(changes[0])} in {places}")
    for what, places in texts.items():
        yield f"{what}: {'; '.join(places)}"


def _alike(change: CollectiveChange) -> object:
    """Equal for changes of one module that differ in their places and numbers alone."""
    sides = [
        None if s is None else (s.op, s.group, s.dtype, s.note)
        for s in (change.before, change.after)
    ]
    reshaped = change.before and change.after and change.before.shapes != change.after.shapes
    return (change.kind, change.module, change.to, *sides, bool(reshaped))


def _name(change: CollectiveChange) -> str:
    before, after = change.module or "(layer)", change.to or "(layer)"
    return after if before == after else f"{before} -> {after}"


def _what(changes: Sequence[CollectiveChange]) -> str:
    """A collective in words, and of one that changed what it was, where that differs."""
    before, after = (
        _words([(c.buckets, side) for c in changes if (side := getattr(c, name)) is not None])
        for name in ("before", "after")
    )
    if not before or not after:
        return " ".join(before or after)
    pairs = zip(before, after, strict=True)
    return " ".join(old if old == new else f"({old} -> {new})" for old, new in pairs)


def _words(sides: Sequence[tuple[tuple[Bucket, ...], Side]]) -> list[str]:
    """Op, ranks, and what a rank holds before it."""
    if not sides:
        return []
    first = sides[0][1]
    shapes = [shape for _, side in sides for shape in side.shapes]
    buckets = [bucket for found, _ in sides for bucket in found]
    op = f"{first.op} {first.note}".rstrip()
    return [op, f"over {first.group}", f"{first.dtype}{shape_text(shapes, buckets)}"]


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
    modules: dict[tuple[str, str], list[str]] = {}
    programs: dict[tuple[str, str], set[str]] = {}
    for change in diff.kernels:
        for pair in _replaced(change):
            where = f"{change.module or '(layer)'}{_layers(change.layers)}"
            modules.setdefault(pair, []).append(where)
            programs.setdefault(pair, set()).update(change.programs)
    for (old, new), names in modules.items():
        ran = [name for name in diff.programs if name in programs[old, new]]
        yield f"{old} -> {new}: {_listed(names)} in {program_names(ran, diff.programs)}"


def _replaced(change: KernelChange) -> Iterator[tuple[str, str]]:
    """Kernels of one op against each other; then the rest, if any, together."""
    before, after = list(change.before), list(change.after)
    for old in change.before:
        new = next((name for name in after if _op(name) == _op(old)), None)
        if new is not None:
            before.remove(old)
            after.remove(new)
            yield old, new
    if before or after:
        yield " + ".join(before) or "nothing", " + ".join(after) or "nothing"


def _op(kernel: str) -> str:
    return kernel.partition(".")[0]


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


def others(diff: Diff) -> Iterator[str]:
    """What differs in order, work or arena alone."""
    if diff.others:
        named = [name for name in diff.others if name in diff.programs]
        shown = program_names(named, diff.programs) if named else ", ".join(diff.others)
        yield f"order, work or arena in {shown}"


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
            yield f"{_count(most, 'collective')} {kind.value} a step"
    for word, side in (("added", "before"), ("removed", "after")):
        if count := sum(getattr(change, side) is None for change in diff.loads):
            yield f"{_count(count, 'program')} {word}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
    "other": others,
}
"""What there are lines about, in the order in which they print."""
