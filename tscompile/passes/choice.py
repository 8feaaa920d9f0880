"""The choice of one op's strategy: priced, deterministic, and a function of its question alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tscompile.cost.model import FREE, Price, compute_price, reshard_price
from tscompile.cost.topology import Topology
from tscompile.ir.placement import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    local_shape,
    replicated,
    undivided_dim,
)
from tscompile.rules import RULES, OpTypes, Strategy
from tskernels.ops import OPS
from tskernels.schema import OpKind, TensorType
from tsruntime.artifact.schema import Mesh


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that the choice for one op depends on: equal questions have equal answers.

    For each input: the placements it is live in, whether those are fixed, and what a boundary
    requires of it on each axis.
    """

    op: str
    types: OpTypes
    live: tuple[tuple[Placements, ...], ...]
    fixed: tuple[str, ...]
    required: tuple[tuple[Placement | None, ...], ...]

    def key(self) -> object:
        """Hashable form."""
        types = self.types
        attributes = tuple(sorted(types.attributes.items()))
        return (
            self.op,
            types.inputs,
            types.outputs,
            attributes,
            self.live,
            self.fixed,
            self.required,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """Placements of an op's inputs and outputs, and the predicted price."""

    inputs: tuple[Placements, ...]
    outputs: tuple[Placements, ...]
    price: Price


def choose(mesh: Mesh, topology: Topology, question: Question) -> Choice | None:
    """The cheapest legal choice; of equal ones that which the rules list first."""
    strategies = [s for s in RULES[question.op].strategies(question.types) if not s.spread]
    each = [[s for s in strategies if _fits(question, s, axis)] for axis in range(len(mesh.axes))]
    choices = [_priced(mesh, topology, question, combination) for combination in product(*each)]
    return min((c for c in choices if c is not None), key=lambda c: c.price, default=None)


def _fits(question: Question, strategy: Strategy, axis: int) -> bool:
    """Whether inputs can be had as the strategy wants them along one axis."""
    for position, wanted in enumerate(strategy.inputs):
        live = {placements[axis] for placements in question.live[position]}
        required = question.required[position][axis]
        if live and required is not None and required != wanted:
            return False
        if live and not any(_reachable(p, wanted, question.fixed[position]) for p in live):
            return False
    return True


def _reachable(source: Placement, target: Placement, fixed: str) -> bool:
    if source == target:
        return True
    match fixed, source, target:
        case "cache", _, _:
            return False
        case "weight", Replicate(), Partial():
            return True
        case "weight", _, _:
            return False
        case _, Shard(), Partial():
            return False
        case _:
            return True


def _priced(
    mesh: Mesh, topology: Topology, question: Question, combination: Sequence[Strategy]
) -> Choice | None:
    """The choice of one strategy an axis, or None where its tiles do not divide."""
    types = question.types
    inputs = tuple(tuple(s.inputs[i] for s in combination) for i in range(len(types.inputs)))
    outputs = tuple(tuple(s.outputs[o] for s in combination) for o in range(len(types.outputs)))
    placed = [
        (t, p)
        for t, p in zip((*types.inputs, *types.outputs), (*inputs, *outputs), strict=True)
        if t is not None
    ]
    if any(undivided_dim(mesh, t.shape, p) is not None for t, p in placed):
        return None
    price = _compute(mesh, topology, question, inputs, outputs)
    for type_, live, target in zip(types.inputs, question.live, inputs, strict=True):
        if type_ is not None and target not in live:
            source = cheapest_source(mesh, topology, type_, live, target)
            price += reshard_price(topology, mesh, type_, source, target)
    for type_, placements in zip(types.outputs, outputs, strict=True):
        price += reshard_price(topology, mesh, type_, placements, replicated(mesh))
    return Choice(inputs, outputs, price)


def _compute(
    mesh: Mesh,
    topology: Topology,
    question: Question,
    inputs: tuple[Placements, ...],
    outputs: tuple[Placements, ...],
) -> Price:
    types = question.types
    if OPS[question.op].schema.kind is OpKind.VIEW:
        return FREE
    local = OpTypes(
        tuple(
            None if t is None else _local(mesh, t, p)
            for t, p in zip(types.inputs, inputs, strict=True)
        ),
        tuple(_local(mesh, t, p) for t, p in zip(types.outputs, outputs, strict=True)),
        types.attributes,
    )
    rule = RULES[question.op]
    return compute_price(topology, rule.traffic(local), rule.flops(local))


def _local(mesh: Mesh, type_: TensorType, placements: Placements) -> TensorType:
    return replace(type_, shape=local_shape(mesh, type_.shape, placements))


def cheapest_source(
    mesh: Mesh,
    topology: Topology,
    type_: TensorType,
    live: Iterable[Placements],
    target: Placements,
) -> Placements:
    """The placement, of those that a value is live in, from which `target` is had cheapest."""
    return min(live, key=lambda source: reshard_price(topology, mesh, type_, source, target))
