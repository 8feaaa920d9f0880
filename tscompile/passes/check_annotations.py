"""Hold module boundaries against bodies: along each axis, what a body can compute as it is placed.

Along one axis a value may be produced in some placements, and be had in others by a reshard. A
whole value is never masked into a sum here: that is how a contradiction would be papered over.
"""

from __future__ import annotations

from dataclasses import dataclass

from tscompile.ir.boundaries import Boundaries
from tscompile.ir.draft import Draft, DraftProgram, DraftValue, Edge
from tscompile.ir.errors import AnnotationError, NoStrategyError
from tscompile.ir.graph import Node
from tscompile.ir.placement import (
    PARTIAL,
    REPLICATE,
    Partial,
    Placement,
    Shard,
    label,
)
from tscompile.rules import RULES, OpTypes, Strategy
from tsruntime.artifact.schema import CacheStorage, InputStorage, Mesh, WeightStorage


def check_annotations(draft: Draft) -> None:
    """Check every distinct graph's annotations.

    Raises AnnotationError for a boundary that its body contradicts, NoStrategyError for an op that
    no strategy lets stand beside its weights.
    """
    seen: set[object] = set()
    for program in draft.programs:
        graph = tuple((node.op, node.inputs) for node in program.nodes)
        if graph not in seen:
            seen.add(graph)
            _check(draft.mesh, program)


def _check(mesh: Mesh, program: DraftProgram) -> None:
    boundaries = Boundaries(program.edges)
    walks = [_Walk(mesh, program, boundaries, axis) for axis in range(len(mesh.axes))]
    for node in program.nodes:
        for walk in walks:
            walk.visit(node)
        wrong = [c for walk in walks for c in walk.contradictions]
        if wrong:
            raise _refusal(program, wrong)


@dataclass(frozen=True, slots=True)
class _Contradiction:
    """Along `axis`, `edge` says `required` of its value, but `node` gives or needs `found`."""

    edge: Edge
    node: Node
    axis: str
    required: Placement
    found: Placement


class _Walk:
    """One program along one axis."""

    def __init__(
        self, mesh: Mesh, program: DraftProgram, boundaries: Boundaries, axis: int
    ) -> None:
        self.mesh, self.program, self.axis = mesh, program, axis
        self.name = mesh.axes[axis].name
        self.produced: dict[str, tuple[Placement, ...]] = {}
        self.contradictions: list[_Contradiction] = []
        self._boundaries = boundaries

    def visit(self, node: Node) -> None:
        """What the node's outputs may be produced as; notes what its boundaries contradict."""
        possible = [s for s in self._strategies(node) if self._bound(node, s)]
        if not possible:
            raise self._nothing_fits(node)
        fitting = [s for s in possible if self._entering(node, s)]
        if not fitting:
            self._note_input(node, possible)
            fitting = possible
        for position, name in enumerate(node.outputs):
            found = tuple(dict.fromkeys(s.outputs[position] for s in fitting))
            self.produced[name] = found
            for edge in self._boundaries.leaving(name):
                required = edge.required[self.axis]
                if required is not None and required not in found:
                    self._note(edge, node, required, found[0])

    def _strategies(self, node: Node) -> tuple[Strategy, ...]:
        values = self.program.values
        types = OpTypes(
            tuple(None if name is None else values[name].type for name in node.inputs),
            tuple(values[name].type for name in node.outputs),
            node.attributes,
        )
        return RULES[node.op].along(types, self.mesh, self.name)

    def _bound(self, node: Node, strategy: Strategy) -> bool:
        """Whether weights, caches and what was produced can be had as a strategy wants them."""
        return all(
            name is None or self._reachable(self.program.values[name], wanted)
            for name, wanted in zip(node.inputs, strategy.inputs, strict=False)
        )

    def _reachable(self, value: DraftValue, wanted: Placement) -> bool:
        match value.storage:
            case WeightStorage():
                return value.placements[self.axis] in (wanted, *_masked(wanted))
            case CacheStorage():
                return value.placements[self.axis] == wanted
            case InputStorage():
                return not isinstance(wanted, Partial)
            case _:
                return any(
                    source == wanted or (source, wanted) in _RESHARDS or _cut(source, wanted)
                    for source in self.produced[value.name]
                )

    def _entering(self, node: Node, strategy: Strategy) -> bool:
        return all(
            name is None
            or (edge := self._edge(node, name)) is None
            or edge.required[self.axis] == s
            for name, s in zip(node.inputs, strategy.inputs, strict=False)
        )

    def _edge(self, node: Node, name: str) -> Edge | None:
        return self._boundaries.entering(name, node.module, self.axis)

    def _note_input(self, node: Node, possible: list[Strategy]) -> None:
        for name, needed in zip(node.inputs, possible[0].inputs, strict=False):
            edge = None if name is None else self._edge(node, name)
            required = edge.required[self.axis] if edge is not None else None
            if edge is not None and required is not None and required != needed:
                self._note(edge, node, required, needed)
                return

    def _note(self, edge: Edge, node: Node, required: Placement, found: Placement) -> None:
        self.contradictions.append(_Contradiction(edge, node, self.name, required, found))

    def _nothing_fits(self, node: Node) -> NoStrategyError:
        values = [self.program.values[n] for n in node.inputs if n is not None]
        bound = ", ".join(
            f"{v.name} {list(v.type.shape)} as {label(self.mesh, v.placements) or 'Replicate'}"
            for v in values
            if isinstance(v.storage, WeightStorage | CacheStorage)
        )
        return NoStrategyError(
            f"no strategy of {node.op} in module {node.module} fits {bound or 'its inputs'}",
            remedy="place its weights as one of the strategies in tscompile/rules wants them, "
            "over ranks that divide their dims",
            where=node.module,
        )


_RESHARDS = frozenset({(PARTIAL, REPLICATE)})


def _cut(source: Placement, wanted: Placement) -> bool:
    """Anything may be cut, and what is cut be put together or cut otherwise."""
    return isinstance(wanted, Shard) or (isinstance(source, Shard) and wanted == REPLICATE)


def _masked(wanted: Placement) -> tuple[Placement, ...]:
    return (REPLICATE,) if wanted == PARTIAL else ()


def _refusal(program: DraftProgram, wrong: list[_Contradiction]) -> AnnotationError:
    """The first contradiction, with all axes along which it is the same."""
    first = wrong[0]
    same = [
        c
        for c in wrong
        if (c.edge, c.required, c.found) == (first.edge, first.required, first.found)
    ]
    axes = "+".join(c.axis for c in same)
    edge, node = first.edge, first.node
    found = f"its body computes {first.found}"
    if edge.side == "input":
        found = f"{node.op} in {node.module} needs it as {first.found}"
    return AnnotationError(
        f"the {edge.side} of module {edge.module} (value {edge.value}) is annotated "
        f"{first.required} over axes {axes}, but {found}",
        remedy="correct the annotation, or shard the weights so that the body fits it",
        where=edge.module,
    )
