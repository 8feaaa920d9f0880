"""What must hold of a plan after each pass: a table of invariants, checked every time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

from tscompile.ir import fused, invariants
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.errors import VerifyError


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


@dataclass(frozen=True, slots=True)
class Invariant:
    """A check of one program that yields a sentence for each violation, and when it holds."""

    check: Callable[[Draft, DraftProgram], Iterable[str]]
    first: Stage = Stage.PLAN_BUCKETS
    last: Stage = Stage.PIN_KERNELS


TABLE = (
    Invariant(invariants.values_are_defined_once_and_before_use),
    Invariant(invariants.ops_are_known_with_all_attributes),
    Invariant(invariants.caches_are_threaded),
    Invariant(invariants.weights_are_as_in_the_table),
    Invariant(invariants.global_types_follow, last=Stage.PLAN_BUCKETS),
    Invariant(invariants.values_are_placed, first=Stage.PROPAGATE_PLACEMENTS),
    Invariant(invariants.tiles_divide, first=Stage.PROPAGATE_PLACEMENTS, last=Stage.LOWER_RESHARDS),
    Invariant(
        invariants.ops_follow_a_strategy,
        first=Stage.PROPAGATE_PLACEMENTS,
        last=Stage.LOWER_RESHARDS,
    ),
    Invariant(invariants.output_is_whole, first=Stage.PROPAGATE_PLACEMENTS),
    Invariant(invariants.nothing_is_left_to_lower, first=Stage.LOWER_RESHARDS),
    Invariant(invariants.collectives_change_what_they_say, first=Stage.LOWER_RESHARDS),
    Invariant(invariants.types_follow, first=Stage.LOCALIZE),
    Invariant(
        fused.marked_nodes_stand_together,
        first=Stage.PROPAGATE_PLACEMENTS,
        last=Stage.FUSE_COLLECTIVES,
    ),
    Invariant(fused.collectives_are_written, first=Stage.FUSE_COLLECTIVES),
    Invariant(fused.no_mark_is_left, first=Stage.FUSE_COMPUTE),
    Invariant(fused.reductions_change_what_they_say, first=Stage.FUSE_COLLECTIVES),
    Invariant(invariants.weights_are_made_of_their_parts, first=Stage.LOCALIZE),
    Invariant(invariants.storage_is_disjoint, first=Stage.PLAN_MEMORY),
    Invariant(invariants.views_alias_their_source, first=Stage.PLAN_MEMORY),
    Invariant(invariants.pins_resolve, first=Stage.PIN_KERNELS),
)


def verify(draft: Draft, stage: Stage) -> None:
    """Raise VerifyError naming the program and the first violation of the stage's invariants."""
    for invariant in TABLE:
        if not invariant.first <= stage <= invariant.last:
            continue
        for program in draft.programs:
            for violation in invariant.check(draft, program):
                raise VerifyError(
                    f"after {stage.name.lower()}: {violation}",
                    remedy="if no one edited the plan, that pass has a defect: report it",
                    where=f"program {program.name}",
                )
