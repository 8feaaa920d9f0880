"""A step of a program as bars: runs of layers over the whole step, and one layer of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tscompile.communication.groups import ranges
from tscompile.communication.plan import Entry, ProgramPlan, Section
from tscompile.communication.prices import Prices
from tscompile.communication.units import bytes_text, time_text


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a bar: where it begins and how long it is, in per cent of the bar's scale."""

    start: float
    length: float
    talks: bool
    title: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a timeline, `text` at its left: its time."""

    label: str
    text: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One side of a program: the whole step, then one layer of each kind."""

    side: str
    whole: Bar
    layers: tuple[Bar, ...]


def step_time(prices: Prices, program: ProgramPlan) -> int:
    """Picoseconds of a step."""
    return prices.program(program).picoseconds


def layer_time(prices: Prices, program: ProgramPlan) -> int:
    """Picoseconds of the longest layer."""
    kinds = program.sections[1:-1]
    return max((_time(prices, kind.entries) for kind in kinds), default=0)


def timeline(side: str, prices: Prices, program: ProgramPlan, step: int, layer: int) -> Timeline:
    """The bars of a program, the whole step on a scale of `step`, layers on one of `layer`."""
    whole = tuple(_runs(prices, program, step))
    text = time_text(step_time(prices, program))
    bars = [
        Bar(
            f"{'one of layers' if kind.times > 1 else 'layer'} {ranges(kind.layers)}",
            time_text(_time(prices, kind.entries)),
            tuple(_entries(prices, kind.entries, layer)),
        )
        for kind in program.sections[1:-1]
    ]
    return Timeline(side, Bar("whole step", text, whole), tuple(bars))


def _time(prices: Prices, entries: Sequence[Entry]) -> int:
    return sum(prices.entry(entry).picoseconds for entry in entries)


def _runs(prices: Prices, program: ProgramPlan, scale: int) -> Iterator[Segment]:
    """Neighbouring layers of one kind as a segment for what they compute and one for the rest."""
    at = 0.0
    for section, count, name in _in_order(program):
        parts = [[e for e in section.entries if e.communicates is talks] for talks in (False, True)]
        for talks, entries in zip((False, True), parts, strict=True):
            time = count * _time(prices, entries)
            length = 100 * time / max(scale, 1)
            if time:
                word = "communication" if talks else "kernels"
                yield Segment(at, length, talks, f"{name}: {word}, {time_text(time)}")
            at += length


def _in_order(program: ProgramPlan) -> Iterator[tuple[Section, int, str]]:
    head, *kinds, tail = program.sections
    owner = {layer: kind for kind in kinds for layer in kind.layers}
    runs: list[list[int]] = []
    for layer in sorted(owner):
        if runs and owner[runs[-1][-1]] is owner[layer]:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    yield head, 1, "before the layers"
    yield from ((owner[run[0]], len(run), f"layers {ranges(run)}") for run in runs)
    yield tail, 1, "behind the layers"


def _entries(prices: Prices, entries: Sequence[Entry], scale: int) -> Iterator[Segment]:
    at = 0.0
    for entry in entries:
        time = prices.entry(entry).picoseconds
        length = 100 * time / max(scale, 1)
        sent = f", {bytes_text(entry.wire)} sent" if entry.communicates else ""
        name = f"{entry.module or 'layer'}: {entry.pin or entry.op}"
        yield Segment(at, length, entry.communicates, f"{name}, {time_text(time)}{sent}")
        at += length
