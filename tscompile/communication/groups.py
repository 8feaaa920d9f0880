"""Programs that are alike but for numbers, so that like buckets print once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tscompile.communication.numbers import Bucket
from tscompile.communication.plan import Entry, ProgramPlan, Section


@dataclass(frozen=True, slots=True)
class Column:
    """The same entry of each program of a group."""

    entries: tuple[Entry, ...]

    @property
    def first(self) -> Entry:
        """Of the first program; the others differ in numbers alone."""
        return self.entries[0]


@dataclass(frozen=True, slots=True)
class Group:
    """Programs of one phase whose sections hold the same entries but for numbers."""

    programs: tuple[ProgramPlan, ...]

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Their sizes."""
        return tuple(Bucket(p.tokens, p.sequences) for p in self.programs)

    def sections(self) -> Iterator[tuple[Section, list[Column]]]:
        """The sections (as of the first program), and their entries in columns."""
        for sections in zip(*(p.sections for p in self.programs), strict=True):
            rows = zip(*(section.entries for section in sections), strict=True)
            yield sections[0], [Column(row) for row in rows]


def grouped(programs: Sequence[ProgramPlan]) -> list[Group]:
    """The groups, in the order of their first programs."""
    found: dict[object, list[ProgramPlan]] = {}
    for program in programs:
        found.setdefault(_program_likeness(program), []).append(program)
    return [Group(tuple(members)) for members in found.values()]


def _program_likeness(program: ProgramPlan) -> object:
    sections = tuple(
        (section.layers, tuple(likeness(entry) for entry in section.entries))
        for section in program.sections
    )
    return (program.phase, program.logits, sections)


def likeness(entry: Entry) -> object:
    """Equal for entries that differ in numbers alone."""
    return (
        entry.module,
        entry.op,
        entry.dtype,
        len(entry.shape),
        entry.axes,
        entry.note,
        entry.launches,
        entry.pin,
    )


def ranges(numbers: Sequence[int]) -> str:
    """`0..2,5` of rising numbers; `0..34 step 2` where they are evenly apart."""
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}..{numbers[-1]} step {steps.pop()}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}..{b}" for a, b in runs)


def numbers_of(text: str) -> tuple[int, ...]:
    """The numbers that `ranges` gives `text` for. Raises ValueError."""
    whole, _, step = text.partition(" step ")
    if step:
        first, _, last = whole.partition("..")
        return tuple(range(int(first), int(last) + 1, int(step)))
    found: list[int] = []
    for part in whole.split(","):
        first, _, last = part.partition("..")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


def program_names(some: Sequence[str], every: Sequence[str]) -> str:
    """`all programs`, or `decode_8..64, extend_512x64` of those that stand in a row in `every`."""
    if len(some) == len(every):
        return "all programs" if len(every) > 1 else every[0]
    runs: list[list[str]] = []
    for name in some:
        last = runs[-1][-1] if runs else ""
        if runs and _series(last) == _series(name) and every.index(last) + 1 == every.index(name):
            runs[-1].append(name)
        else:
            runs.append([name])
    pairs = ((run[0], run[-1].partition("_")[2]) for run in runs)
    return ", ".join(
        first if len(run) == 1 else f"{first}..{last}"
        for run, (first, last) in zip(runs, pairs, strict=True)
    )


def _series(name: str) -> tuple[str, bool]:
    """Programs that make a range: of one phase, which give the same logits."""
    return name.partition("_")[0], name.endswith("_all")
