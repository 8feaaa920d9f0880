"""What must hold of a plan after each pass: a table of invariants, checked every time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from tscompile.ir import fused, invariants, local_invariants
from tscompile.ir.alike import Applied, Distinct, Numbers
from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.errors import VerifyError
from tsruntime.artifact.schema import Mesh

T = TypeVar("T")


class Stage(IntEnum):
    """The pass that has just run."""

    PLAN_BUCKETS = 1
    PROPAGATE_PLACEMENTS = 2
    LOWER_RESHARDS = 3
    LOCALIZE = 4
    FUSE_COLLECTIVES = 5
    FUSE_COMPUTE = 6
    PLAN_MEMORY = 7
    PIN_KERNELS = 8

    @property
    def number(self) -> int:
        """Its place in the pipeline, from 1."""
        return int(self)


class Known:
    """What was found to hold of nodes and values, in all drafts of one compilation."""

    def __init__(self) -> None:
        self.numbers = Numbers()
        self._mesh: Mesh | None = None
        self._held: dict[object, set[Hashable]] = {}

    def held(self, check: object, mesh: Mesh) -> set[Hashable]:
        """What a check found no fault with on the mesh; of another one, nothing is known."""
        if mesh != self._mesh:
            self._mesh, self._held = mesh, {}
        return self._held.setdefault(check, set())


class Looked:
    """A program of a draft, looked at in the light of what is known."""

    def __init__(self, draft: Draft, program: DraftProgram, known: Known) -> None:
        self.draft, self.program, self._known = draft, program, known
        self._distinct = Distinct(program, known.numbers)

    def nodes(self, check: Callable[[Mesh, Applied], Iterable[str]]) -> Iterator[str]:
        """Violations of the nodes, of those that are alike the first one's."""
        return self._each(check, self._distinct.nodes)

    def values(self, check: Callable[[Mesh, DraftValue], Iterable[str]]) -> Iterator[str]:
        """Violations of the values, of those that are alike the first one's."""
        return self._each(check, self._distinct.values)

    def _each(
        self, check: Callable[[Mesh, T], Iterable[str]], items: Mapping[Hashable, T]
    ) -> Iterator[str]:
        mesh = self.draft.mesh
        held = self._known.held(check, mesh)
        for key, item in items.items():
            if key not in held:
                found = list(check(mesh, item))
                yield from found
                if not found:
                    held.add(key)


@dataclass(frozen=True, slots=True)
class Invariant:
    """A check of one program that yields a sentence for each violation, and when it holds."""

    check: Callable[[Draft, DraftProgram], Iterable[str]]
    first: Stage = Stage.PLAN_BUCKETS
    last: Stage = Stage.PIN_KERNELS

    def violations(self, of: Looked) -> Iterable[str]:
        """Of a program."""
        return self.check(of.draft, of.program)


@dataclass(frozen=True, slots=True)
class NodeInvariant:
    """A check of a node with its values, made once for all that are alike."""

    check: Callable[[Mesh, Applied], Iterable[str]]
    first: Stage = Stage.PLAN_BUCKETS
    last: Stage = Stage.PIN_KERNELS

    def violations(self, of: Looked) -> Iterable[str]:
        """Of a program."""
        return of.nodes(self.check)


@dataclass(frozen=True, slots=True)
class ValueInvariant:
    """A check of a value, made once for all that are alike."""

    check: Callable[[Mesh, DraftValue], Iterable[str]]
    first: Stage = Stage.PLAN_BUCKETS
    last: Stage = Stage.PIN_KERNELS

    def violations(self, of: Looked) -> Iterable[str]:
        """Of a program."""
        return of.values(self.check)


TABLE = (
    Invariant(invariants.values_are_defined_once_and_before_use),
    NodeInvariant(local_invariants.ops_are_known_with_all_attributes),
    Invariant(invariants.caches_are_threaded),
    Invariant(invariants.weights_are_as_in_the_table),
    NodeInvariant(local_invariants.global_types_follow, last=Stage.PLAN_BUCKETS),
    ValueInvariant(local_invariants.values_are_placed, first=Stage.PROPAGATE_PLACEMENTS),
    ValueInvariant(
        local_invariants.tiles_divide,
        first=Stage.PROPAGATE_PLACEMENTS,
        last=Stage.LOWER_RESHARDS,
    ),
    NodeInvariant(
        local_invariants.ops_follow_a_strategy,
        first=Stage.PROPAGATE_PLACEMENTS,
        last=Stage.LOWER_RESHARDS,
    ),
    Invariant(invariants.output_is_whole, first=Stage.PROPAGATE_PLACEMENTS),
    Invariant(invariants.nothing_is_left_to_lower, first=Stage.LOWER_RESHARDS),
    NodeInvariant(local_invariants.collectives_change_what_they_say, first=Stage.LOWER_RESHARDS),
    NodeInvariant(local_invariants.types_follow, first=Stage.LOCALIZE),
    Invariant(
        fused.marked_nodes_stand_together,
        first=Stage.PROPAGATE_PLACEMENTS,
        last=Stage.FUSE_COLLECTIVES,
    ),
    NodeInvariant(fused.collectives_are_written, first=Stage.FUSE_COLLECTIVES),
    NodeInvariant(fused.no_mark_is_left, first=Stage.FUSE_COMPUTE),
    NodeInvariant(fused.reductions_change_what_they_say, first=Stage.FUSE_COLLECTIVES),
    Invariant(invariants.weights_are_made_of_their_parts, first=Stage.LOCALIZE),
    Invariant(invariants.storage_is_disjoint, first=Stage.PLAN_MEMORY),
    Invariant(invariants.views_alias_their_source, first=Stage.PLAN_MEMORY),
    NodeInvariant(local_invariants.pins_resolve, first=Stage.PIN_KERNELS),
)


def verify(draft: Draft, stage: Stage, known: Known | None = None) -> None:
    """Raise VerifyError naming the program and the first violation of the stage's invariants.

    Who verifies several drafts of one compilation gives all of them the same `known`.
    """
    known = known or Known()
    for program in draft.programs:
        looked = Looked(draft, program, known)
        for invariant in TABLE:
            if not invariant.first <= stage <= invariant.last:
                continue
            for violation in invariant.violations(looked):
                raise VerifyError(
                    f"after {stage.name.lower()}: {violation}",
                    remedy="if no one edited the plan, that pass has a defect: report it",
                    where=f"program {program.name}",
                )
