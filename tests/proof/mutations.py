"""Single mutations of a plan: each kind at every site where it applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from proof import mutated_collectives as collective
from proof import mutated_inputs as told
from proof import mutated_operands as operand

from tsruntime.artifact.schema import Plan

Kind = Callable[[Plan], Iterator[tuple[str, Plan]]]


@dataclass(frozen=True)
class Mutant:
    """A kind of mutation at one site; rank r runs `plans[r]`."""

    kind: str
    site: str
    plans: tuple[Plan, ...]


UNIFORM: Mapping[str, Kind] = MappingProxyType(
    {
        "collective dropped": collective.dropped,
        "collective doubled": collective.doubled,
        "collectives' operands swapped": collective.inputs_swapped,
        "collectives' order swapped": collective.swapped_order,
        "collective over other axes of equal size": collective.retargeted,
        "collective over other axes": collective.widened,
        "collective of another size": collective.resized,
        "collective's members reordered": collective.reordered,
        "collective along another dim": collective.redirected,
        "collective of another kind": collective.rekinded,
        "collective's dtype changed": collective.retyped,
        "sum to max": collective.maximum,
        "mask dropped": collective.mask_dropped,
        "mask on other ranks": collective.mask_moved,
        "offset moved": collective.offset,
        "another rank's shard": operand.other_shard,
        "another rank's file": operand.other_file,
        "another weight": operand.other_tensor,
        "weight cut the other way": operand.other_dim,
        "packed parts swapped": operand.parts_swapped,
        "another value wired in": operand.rewired,
        "operands swapped": operand.operands_swapped,
        "operand dropped": operand.operand_dropped,
        "attribute changed": operand.reattributed,
        "ops exchanged": operand.ops_exchanged,
        "input masked": told.masked,
        "input cut": told.halved,
        "another cache": operand.other_cache,
        "value over another one": operand.moved_bytes,
        "strides changed": operand.restrided,
        "another output": operand.other_output,
        "dtype changed on all ranks": operand.narrower,
        "constant changed": operand.other_constant,
        "label changed": operand.relabelled,
    }
)
"""Mutations that all ranks run alike."""

_LOCAL = (
    "collective dropped",
    "collectives' order swapped",
    "collective over other axes of equal size",
    "collective's members reordered",
    "collective of another kind",
    "sum to max",
    "mask dropped",
    "offset moved",
    "another value wired in",
    "operands swapped",
    "operand dropped",
    "attribute changed",
    "ops exchanged",
)


def mutants(plan: Plan) -> Iterator[Mutant]:
    """Every mutation at every site: on all ranks, and, where that can be, on one rank class only.

    A rank class is the ranks of one coordinate along one axis: what it runs differs from the
    others, as if a predicate were local to the rank.
    """
    world = plan.mesh.world
    for kind, edits in UNIFORM.items():
        for site, edited in edits(plan):
            yield Mutant(kind, site, (edited,) * world)
    if world == 1:
        return
    for kind in _LOCAL:
        for number, (site, edited) in enumerate(UNIFORM[kind](plan)):
            axis = plan.mesh.axes[number % len(plan.mesh.axes)].name
            plans = tuple(
                edited if plan.mesh.coordinate(rank, (axis,)) == 1 else plan
                for rank in range(world)
            )
            yield Mutant(f"{kind}, on some ranks", f"{site} along {axis}", plans)
