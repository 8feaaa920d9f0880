"""Two programs of one bucket side by side: which collectives and kernels of which module changed.

Collectives of one module are compared in order. One that a module lost and another gained, in as
many layers, has moved; what then changed in kind alone has moved and changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tscompile.communication.plan import Entry, ProgramPlan
from tscompile.communication.prices import LEGS
from tscompile.diff.changes import Kind
from tscompile.diff.geometry import geometry
from tsruntime.artifact.schema import Mesh

HEAD, TAIL = -1, 1 << 30
"""Positions of what comes before and behind the layers, where layers are counted from 0."""

Body = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A change of one collective in some positions of one program."""

    kind: Kind
    module: str
    to: str
    positions: tuple[int, ...]
    to_positions: tuple[int, ...]
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class FoundKernels:
    """Kernels that a module runs no longer, and those that it runs now, in some positions."""

    module: str
    positions: tuple[int, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(slots=True)
class _Raw:
    """What two bodies have differently: pairs of one module, then what only one of them has."""

    changed: list[tuple[Entry, Entry]] = field(default_factory=list[tuple[Entry, Entry]])
    gone: list[Entry] = field(default_factory=list[Entry])
    come: list[Entry] = field(default_factory=list[Entry])
    kernels: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = field(
        default_factory=list[tuple[str, tuple[str, ...], tuple[str, ...]]]
    )


class Aligner:
    """Compares programs of two meshes; without `pins`, kernels are known by their ops alone."""

    def __init__(self, before: Mesh, after: Mesh, *, pins: bool) -> None:
        self._meshes, self._pins = (before, after), pins
        self._known: dict[tuple[Body, Body], _Raw] = {}

    def compare(
        self, before: ProgramPlan, after: ProgramPlan
    ) -> tuple[list[Found], list[FoundKernels]]:
        """What changed between two programs."""
        left, right = _bodies(before), _bodies(after)
        gone: dict[tuple[object, ...], tuple[Entry, list[int]]] = {}
        come: dict[tuple[object, ...], tuple[Entry, list[int]]] = {}
        pairs: dict[tuple[object, ...], tuple[Entry, Entry, list[int]]] = {}
        kernels: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for position in sorted({*left, *right}):
            raw = self._bodies(left.get(position, ()), right.get(position, ()))
            for a, b in raw.changed:
                key = (a.module, self._content(0, a), self._content(1, b))
                pairs.setdefault(key, (a, b, []))[2].append(position)
            for side, entries, into in ((0, raw.gone, gone), (1, raw.come, come)):
                for entry in entries:
                    key = (entry.module, self._content(side, entry))
                    into.setdefault(key, (entry, []))[1].append(position)
            for change in raw.kernels:
                kernels.setdefault(change, []).append(position)
        found = [
            Found(Kind.CHANGED, a.module, b.module, tuple(at), tuple(at), a, b)
            for a, b, at in pairs.values()
        ]
        found += self._moved(list(gone.values()), list(come.values()))
        listed = [FoundKernels(m, tuple(at), a, b) for (m, a, b), at in kernels.items()]
        return found, listed

    def _content(self, side: int, entry: Entry) -> tuple[object, ...]:
        """What a collective does, in whatever module."""
        where = geometry(self._meshes[side], entry.axes)
        return (entry.op, where, entry.note, entry.dtype, entry.shape)

    def _likeness(self, side: int, entry: Entry) -> tuple[object, ...]:
        """Between which ranks it begins to do what."""
        return (LEGS[entry.op][0], geometry(self._meshes[side], entry.axes))

    def _bodies(self, left: Body, right: Body) -> _Raw:
        if (left, right) not in self._known:
            self._known[left, right] = self._compared(left, right)
        return self._known[left, right]

    def _compared(self, left: Body, right: Body) -> _Raw:
        raw = _Raw()
        if left == right and self._meshes[0] == self._meshes[1]:
            return raw
        for module in dict.fromkeys(e.module for e in (*left, *right)):
            ours = [e for e in left if e.module == module]
            theirs = [e for e in right if e.module == module]
            self._collectives(raw, _talking(ours), _talking(theirs))
            self._kernels(raw, module, ours, theirs)
        raw.gone.sort(key=left.index)  # not by module, whose order both sides have a say in
        raw.come.sort(key=right.index)
        return raw

    def _collectives(self, raw: _Raw, ours: list[Entry], theirs: list[Entry]) -> None:
        gone, come = _without_common(
            ours, theirs, lambda e: self._content(0, e), lambda e: self._content(1, e)
        )
        both = min(len(gone), len(come))
        raw.changed += zip(gone[:both], come[:both], strict=True)
        raw.gone += gone[both:]
        raw.come += come[both:]

    def _kernels(
        self, raw: _Raw, module: str, ours: Sequence[Entry], theirs: Sequence[Entry]
    ) -> None:
        """Kernels that differ; of collectives only the kernels of ops that both sides have."""
        common = {e.op for e in ours} & {e.op for e in theirs}
        left = [e for e in ours if not e.communicates or e.op in common]
        right = [e for e in theirs if not e.communicates or e.op in common]
        gone, come = _without_common(left, right, self._name, self._name)
        before = [self._name(e) for e in gone if not e.communicates or self._pins]
        after = [self._name(e) for e in come if not e.communicates or self._pins]
        if before or after:
            raw.kernels.append((module, tuple(before), tuple(after)))

    def _name(self, entry: Entry) -> str:
        return entry.pin if self._pins else entry.op

    def _moved(
        self, gone: list[tuple[Entry, list[int]]], come: list[tuple[Entry, list[int]]]
    ) -> Iterator[Found]:
        """What only one side has, paired where it is the same elsewhere, or begins alike."""
        for kind, key in ((Kind.MOVED, self._content), (Kind.CHANGED, self._likeness)):
            left = _by(gone, lambda entry, key=key: key(0, entry))
            right = _by(come, lambda entry, key=key: key(1, entry))
            for alike, ours in left.items():
                for one, other in zip(ours, right.get(alike, ()), strict=False):
                    (a, at), (b, to) = one, other
                    yield Found(kind, a.module, b.module, tuple(at), tuple(to), a, b)
                    gone.remove(one)
                    come.remove(other)
        for entry, at in gone:
            positions = tuple(at)
            yield Found(Kind.REMOVED, entry.module, entry.module, positions, positions, entry, None)
        for entry, at in come:
            positions = tuple(at)
            yield Found(Kind.ADDED, entry.module, entry.module, positions, positions, None, entry)


def _without_common(
    ours: Sequence[Entry],
    theirs: Sequence[Entry],
    left: Callable[[Entry], Hashable],
    right: Callable[[Entry], Hashable],
) -> tuple[list[Entry], list[Entry]]:
    """Both lists without what they have in common, each as often as both have it."""
    shared = Counter(map(left, ours)) & Counter(map(right, theirs))
    return _beyond(ours, left, shared), _beyond(theirs, right, shared)


def _beyond(
    entries: Sequence[Entry], key: Callable[[Entry], Hashable], shared: Counter[Hashable]
) -> list[Entry]:
    left = Counter(shared)
    kept: list[Entry] = []
    for entry in entries:
        if left[key(entry)] > 0:
            left[key(entry)] -= 1
        else:
            kept.append(entry)
    return kept


def _by(
    groups: Sequence[tuple[Entry, list[int]]], key: Callable[[Entry], object]
) -> Mapping[object, list[tuple[Entry, list[int]]]]:
    """By what `key` says of them, and in how many positions they are."""
    found: dict[object, list[tuple[Entry, list[int]]]] = {}
    for entry, at in groups:
        found.setdefault((key(entry), len(at)), []).append((entry, at))
    return found


def _talking(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.communicates]


def _bodies(program: ProgramPlan) -> dict[int, Body]:
    """What runs at each position."""
    head, *kinds, tail = program.sections
    bodies = {layer: kind.entries for kind in kinds for layer in kind.layers}
    return {HEAD: head.entries, **bodies, TAIL: tail.entries}
