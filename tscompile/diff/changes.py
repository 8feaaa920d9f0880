"""What a comparison finds, as data: every output format prints this and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tscompile.communication.numbers import Bucket
from tscompile.communication.prices import Load


class Kind(StrEnum):
    """What happened to a collective; `changed` may also have moved."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Side:
    """A collective on one side: `group` is `a+b(16)`; shapes and wire bytes by program."""

    op: str
    group: str
    dtype: str
    note: str
    shapes: tuple[tuple[int, ...], ...]
    wire: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CollectiveChange:
    """One collective of some layers (none: outside of them) of some programs.

    `buckets` are the sizes of `programs`. `module` is where it was, `to` where it is: the same
    unless it moved; of one that is added or removed, both say where. `to_layers` differ from
    `layers` for one that moved between layers.
    """

    kind: Kind
    module: str
    to: str
    programs: tuple[str, ...]
    buckets: tuple[Bucket, ...]
    layers: tuple[int, ...]
    to_layers: tuple[int, ...]
    before: Side | None
    after: Side | None

    @property
    def times(self) -> int:
        """How many collectives of one step it stands for."""
        return max(1, len(self.layers))


@dataclass(frozen=True, slots=True)
class KernelChange:
    """Kernels that a module no longer runs, and those that it runs instead."""

    module: str
    programs: tuple[str, ...]
    layers: tuple[int, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadChange:
    """One step of a program on one rank; None on the side where there is no such program."""

    program: str
    before: Load | None
    after: Load | None


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Bytes of one rank."""

    kind: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """How a weight or a KV cache lies on the ranks; empty where it is not."""

    name: str
    layers: tuple[int, ...]
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A size or name of the deployment."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A module or weight that does the same under another name.

    Everything else in a `Diff` calls it by the name that it has now.
    """

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Diff:
    """Everything that differs; `links` name the levels of links of each side, innermost first.

    `programs` are those that both have; `others` what differs in a way that nothing else tells:
    programs whose kernels only change places, or move and compute otherwise at the same price, or
    whose arena does; the rest, where no program does. `memory` lists what changed; `held` is the
    whole of a rank, before and after.
    """

    before: str
    after: str
    programs: tuple[str, ...]
    links: tuple[tuple[str, ...], tuple[str, ...]]
    held: tuple[int, int]
    settings: tuple[Setting, ...] = ()
    renames: tuple[Rename, ...] = ()
    collectives: tuple[CollectiveChange, ...] = ()
    loads: tuple[LoadChange, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    memory: tuple[MemoryChange, ...] = ()
    placements: tuple[PlacementChange, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether both sides are the same."""
        return not (
            self.settings
            or self.renames
            or self.collectives
            or self.loads
            or self.kernels
            or self.memory
            or self.placements
            or self.others
        )


def mirrored(diff: Diff) -> Diff:
    """What comparing the other way round finds."""
    names = {r.after: r.before for r in diff.renames}
    flipped = {Kind.ADDED: Kind.REMOVED, Kind.REMOVED: Kind.ADDED}

    def swapped(change: CollectiveChange) -> CollectiveChange:
        return replace(
            change,
            kind=flipped.get(change.kind, change.kind),
            module=names.get(change.to, change.to),
            to=names.get(change.module, change.module),
            layers=change.to_layers,
            to_layers=change.layers,
            before=change.after,
            after=change.before,
        )

    return Diff(
        before=diff.after,
        after=diff.before,
        programs=diff.programs,
        links=(diff.links[1], diff.links[0]),
        held=(diff.held[1], diff.held[0]),
        settings=tuple(Setting(s.key, s.after, s.before) for s in diff.settings),
        renames=tuple(sorted((Rename(r.after, r.before) for r in diff.renames), key=str)),
        collectives=tuple(sorted(map(swapped, diff.collectives), key=collective_order)),
        loads=tuple(LoadChange(c.program, c.after, c.before) for c in diff.loads),
        kernels=tuple(
            sorted(
                (
                    replace(k, module=names.get(k.module, k.module), before=k.after, after=k.before)
                    for k in diff.kernels
                ),
                key=kernel_order,
            )
        ),
        memory=tuple(MemoryChange(m.kind, m.after, m.before) for m in diff.memory),
        placements=tuple(
            sorted(
                (
                    replace(p, name=names.get(p.name, p.name), before=p.after, after=p.before)
                    for p in diff.placements
                ),
                key=placement_order,
            )
        ),
        others=diff.others,
    )


def collective_order(change: CollectiveChange) -> tuple[int, int, str, str]:
    """By kind, then where it is."""
    return (list(Kind).index(change.kind), _first(change.to_layers), change.to, str(change))


def kernel_order(change: KernelChange) -> tuple[tuple[str, ...], tuple[str, ...], int, str, str]:
    """By what changed into what, then where."""
    return (change.before, change.after, _first(change.layers), change.module, str(change))


def placement_order(change: PlacementChange) -> tuple[str, int, str]:
    """By name, then layer."""
    return (change.name, _first(change.layers), str(change))


def _first(layers: tuple[int, ...]) -> int:
    return layers[0] if layers else -1
