"""Choose a strategy for every op and mark the reshards between them.

The choice walks a program forward, op by op: of the strategies that fit the bound weights and the
annotations it takes the cheapest, counting the reshards of its inputs and what it will cost to
make its outputs whole again. Strategies that only spread work are left out. The exact search over
whole programs takes the place of `choose`, behind the same `Choice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tscompile.cost.topology import Topology, find_topology
from tscompile.ir.draft import Draft, DraftProgram, DraftValue, Edge
from tscompile.ir.errors import AnnotationError, NoStrategyError
from tscompile.ir.graph import RESHARD, Node
from tscompile.ir.placement import Placement, Placements, label, replicated
from tscompile.passes.choice import Choice, Question, cheapest_source, choose
from tscompile.rules import OpTypes
from tsruntime.artifact.schema import CacheStorage, Mesh, WeightStorage


def propagate_placements(draft: Draft) -> Draft:
    """Give every value its placements, and put a `reshard` node where an op wants another one.

    Raises AnnotationError where a boundary's annotation contradicts the body, NoStrategyError
    where nothing fits the bound weights.
    """
    answers: dict[object, Choice | None] = {}
    topology = find_topology(draft.target.topology)
    walks = (_Walk(draft.mesh, topology, program, answers) for program in draft.programs)
    return replace(draft, programs=tuple(walk.run() for walk in walks))


class _Walk:
    """One walk over one program: the values that are live, in every placement they are live in."""

    def __init__(
        self,
        mesh: Mesh,
        topology: Topology,
        program: DraftProgram,
        answers: dict[object, Choice | None],
    ) -> None:
        self.mesh, self.topology, self.program, self.answers = mesh, topology, program, answers
        self.values = {n: v for n, v in program.values.items() if v.is_bound}
        self.nodes: list[Node] = []
        self.variants = {n: {v.placements: n} for n, v in self.values.items()}
        self.entering = _by_value(program.edges, "input")
        self.leaving = _by_value(program.edges, "output")

    def run(self) -> DraftProgram:
        for node in self.program.nodes:
            self._place(node)
        last = self.program.nodes[-1]
        output = self._variant(self.program.output, replicated(self.mesh), last.module)
        return replace(
            self.program, values=self.values, nodes=tuple(self.nodes), output=output, edges=()
        )

    def _place(self, node: Node) -> None:
        question = self._question(node)
        key = question.key()
        if key not in self.answers:
            self.answers[key] = choose(self.mesh, self.topology, question)
        choice = self.answers[key]
        if choice is None:
            raise self._nothing_fits(node, question)
        inputs = tuple(
            None if name is None else self._variant(name, placements, node.module)
            for name, placements in zip(node.inputs, choice.inputs, strict=True)
        )
        self.nodes.append(replace(node, inputs=inputs))
        for name, placements in zip(node.outputs, choice.outputs, strict=True):
            self.values[name] = replace(self.program.values[name], placements=placements)
            self.variants[name] = {placements: name}
            for edge in self.leaving.get(name, ()):
                self._check_leaving(edge, placements)

    def _question(self, node: Node) -> Question:
        values, silent = self.program.values, (None,) * len(self.mesh.axes)
        present = [None if name is None else values[name] for name in node.inputs]
        return Question(
            op=node.op,
            types=OpTypes(
                tuple(None if v is None else v.type for v in present),
                tuple(values[name].type for name in node.outputs),
                node.attributes,
            ),
            live=tuple(() if n is None else tuple(self.variants[n]) for n in node.inputs),
            fixed=tuple(_fixed(v) for v in present),
            required=tuple(
                silent if edge is None else edge.required
                for edge in (self._edge(node, name) for name in node.inputs)
            ),
        )

    def _edge(self, node: Node, name: str | None) -> Edge | None:
        """The innermost annotated boundary through which `name` reaches the node's module."""
        if name not in self.entering:
            return None
        edges = [e for e in self.entering[name] if f"{node.module}.".startswith(f"{e.module}.")]
        return max(edges, key=lambda e: len(e.module), default=None)

    def _variant(self, name: str, placements: Placements, module: str) -> str:
        """The name under which the value is live as `placements`, resharding it if need be."""
        live = self.variants[name]
        if placements in live:
            return live[placements]
        value = self.program.values[name]
        source = cheapest_source(self.mesh, self.topology, value.type, tuple(live), placements)
        result = self._fresh(f"{name}.{_word(source, placements)}")
        self.nodes.append(Node(RESHARD, (live[source],), (result,), {}, module))
        self.values[result] = DraftValue(result, value.type, placements)
        live[placements] = result
        return result

    def _fresh(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self.values or candidate in self.program.values:
            number += 1
            candidate = f"{name}_{number}"
        return candidate

    def _check_leaving(self, edge: Edge, placements: Placements) -> None:
        wrong = _differences(self.mesh, edge.required, placements)
        if wrong:
            axes, required, computed = wrong
            raise AnnotationError(
                f"the output of module {edge.module} (value {edge.value}) is annotated "
                f"{required} over axes {axes}, but its body computes {computed}",
                remedy="correct the annotation, or shard the weights so that the body fits it",
                where=edge.module,
            )

    def _nothing_fits(self, node: Node, question: Question) -> AnnotationError | NoStrategyError:
        silent = replace(question, required=((None,) * len(self.mesh.axes),) * len(node.inputs))
        possible = choose(self.mesh, self.topology, silent)
        for position, name in enumerate(node.inputs):
            edge = self._edge(node, name)
            wrong = (
                possible
                and edge
                and _differences(self.mesh, edge.required, possible.inputs[position])
            )
            if edge and wrong:
                axes, required, needed = wrong
                return AnnotationError(
                    f"the input of module {edge.module} (value {name}) is annotated {required} "
                    f"over axes {axes}, but {node.op} in {node.module} needs it as {needed}",
                    remedy="correct the annotation, or shard the weights so that the body fits it",
                    where=edge.module,
                )
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


def _by_value(edges: Iterable[Edge], side: str) -> dict[str, list[Edge]]:
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        if edge.side == side:
            found.setdefault(edge.value, []).append(edge)
    return found


def _fixed(value: DraftValue | None) -> str:
    """How a value is bound: a "weight" may only be masked, a "cache" never moves, "" is free."""
    match value.storage if value is not None else None:
        case WeightStorage():
            return "weight"
        case CacheStorage():
            return "cache"
        case _:
            return ""


def _differences(
    mesh: Mesh, required: Sequence[Placement | None], actual: Placements
) -> tuple[str, Placement, Placement] | None:
    """Axes, required and actual placement where they first differ, or None."""
    triples = zip(mesh.axes, required, actual, strict=True)
    wrong = [(axis.name, r, a) for axis, r, a in triples if r is not None and r != a]
    if not wrong:
        return None
    _, first_required, first_actual = wrong[0]
    axes = [name for name, r, a in wrong if (r, a) == (first_required, first_actual)]
    return "+".join(axes), first_required, first_actual


def _word(source: Placements, target: Placements) -> str:
    """What a reshard makes of its input, for the value's name."""
    changed = [t for s, t in zip(source, target, strict=True) if s != t]
    return "_".join(dict.fromkeys(type(t).__name__.lower() for t in changed))
