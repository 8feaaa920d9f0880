"""What several programs do in several layers, once: how a plan is made short enough to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tscompile.communication.groups import Column, likeness
from tscompile.communication.numbers import Bucket
from tscompile.communication.plan import Entry, ProgramPlan, Section
from tscompile.search.fused_ops import CHAINS, REDUCTIONS

FUSIONS = frozenset((*CHAINS.values(), *REDUCTIONS.values()))
"""Ops that stand for several of the model's."""

_MOST_LESS = 3
"""Entries that a block may lack of another and still be described by it."""


@dataclass(frozen=True, slots=True)
class Block:
    """Programs that do the same, but for numbers, in the same layers; their entries in columns.

    A block that lacks but a few entries of what the same programs do in the layers `like` has no
    column: `less` lists those, by module and op.
    """

    programs: tuple[ProgramPlan, ...]
    layers: tuple[int, ...]
    columns: tuple[Column, ...]
    like: tuple[int, ...] = ()
    less: tuple[tuple[str, str], ...] = ()

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Sizes of its programs."""
        return tuple(Bucket(p.tokens, p.sequences) for p in self.programs)


@dataclass(frozen=True, slots=True)
class _Lacking:
    """The layers of another section, and what a section lacks of it."""

    like: tuple[int, ...]
    less: tuple[tuple[str, str], ...]


def blocks(programs: Iterable[ProgramPlan], *, fold: bool = True) -> list[Block]:
    """What the programs do, layers that are alike once and programs that are alike together.

    Sections without an entry are left out. Unless `fold`, every block has its columns.
    """
    found: dict[object, list[tuple[ProgramPlan, Section]]] = {}
    lacking: dict[object, _Lacking] = {}
    for program in programs:
        last = len(program.sections) - 1
        for position, section in enumerate(program.sections):
            less = _lacking(program, section) if fold else None
            alike = less or tuple(likeness(entry) for entry in section.entries)
            key = (position == last, section.layers, alike)
            found.setdefault(key, []).append((program, section))
            if less is not None:
                lacking[key] = less
    made = (_block(members, lacking.get(key)) for key, members in found.items())
    return [block for block in made if block.columns or block.less]


def _block(members: Sequence[tuple[ProgramPlan, Section]], lacking: _Lacking | None) -> Block:
    programs, layers = tuple(program for program, _ in members), members[0][1].layers
    if lacking is not None:
        return Block(programs, layers, (), lacking.like, lacking.less)
    rows = zip(*(section.entries for _, section in members), strict=True)
    return Block(programs, layers, tuple(Column(row) for row in rows))


@dataclass(frozen=True, slots=True)
class Fusion:
    """An op that a module runs fused, on a rank alone, in some layers of some programs.

    `entries` are the distinct ones of each program: its tiles may differ by layer.
    """

    module: str
    op: str
    programs: tuple[ProgramPlan, ...]
    layers: tuple[int, ...]
    entries: tuple[tuple[Entry, ...], ...]


def fusions(programs: Iterable[ProgramPlan]) -> list[Fusion]:
    """What is fused without a collective, by module."""
    found: dict[tuple[str, str, tuple[int, ...]], list[tuple[ProgramPlan, list[Entry]]]] = {}
    for program in programs:
        ran: dict[tuple[str, str], tuple[list[Entry], list[int]]] = {}
        for section in program.sections:
            for entry in section.entries:
                if entry.op in FUSIONS and not entry.communicates:
                    entries, layers = ran.setdefault((entry.module, entry.op), ([], []))
                    layers += section.layers
                    entries += [] if entry in entries else [entry]
        for (module, op), (entries, layers) in ran.items():
            key = (module, op, tuple(sorted(layers)))
            found.setdefault(key, []).append((program, entries))
    return [
        Fusion(module, op, tuple(p for p, _ in seen), layers, tuple(tuple(e) for _, e in seen))
        for (module, op, layers), seen in found.items()
    ]


def _lacking(program: ProgramPlan, section: Section) -> _Lacking | None:
    """The section of most layers that has all of this one and little more; None if there is none.

    Only one of more layers, so that no two describe each other.
    """
    others = sorted(program.sections, key=lambda other: -len(other.layers))
    for other in others:
        if not section.entries or len(other.layers) <= len(section.layers):
            return None
        less = _missing(section.entries, other.entries)
        if section.layers and less is not None and len(less) <= _MOST_LESS:
            return _Lacking(other.layers, tuple((entry.module, entry.op) for entry in less))
    return None


def _missing(some: Sequence[Entry], every: Sequence[Entry]) -> list[Entry] | None:
    """What `every` has beyond `some`; None where `some` is no part of it, in order."""
    left, missing = list(some), list[Entry]()
    for entry in every:
        if left and left[0] == entry:
            left.pop(0)
        else:
            missing.append(entry)
    return None if left else missing
