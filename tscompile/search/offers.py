"""Which fused strategies of a draft the search is offered: those that a kernel of the target runs.

A strategy is offered where the nodes make up the fused op, where its types fit (a gain of another
dtype does not), and where some registered kernel takes one rank's tiles: what its traits limit,
such as rows beyond which it was measured slower than its parts, is limited here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tscompile.ir.errors import FusionError
from tscompile.ir.graph import Node
from tscompile.ir.placement import PARTIAL, REPLICATE, Placements, Shard, axes_with
from tscompile.rewrites.table import REWRITES
from tscompile.search.fused_ops import CHAINS, GATED, PACKED, REDUCTIONS
from tscompile.search.graph import Indices, StepGraph, step_graph
from tscompile.search.program import Operation, Program
from tscompile.search.reading import Reading
from tscompile.search.strategies import Batch
from tscompile.search.streams import IDENTITY
from tscompile.search.tiles import distinct, due_tiles
from tskernels.errors import TsError
from tskernels.kernel import PORTABLE, KernelQuery, KernelSpec
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.registry import REGISTRY, Registry
from tskernels.schema import AttributeValue, TensorType
from tskernels.selection import misfit
from tsruntime.artifact.schema import Attribute, Target

Types = tuple[TensorType | None, ...]
Runs: TypeAlias = Callable[[Mapping[str, Placements]], bool]
"""Whether a kernel runs the fused op where its values lie so."""


class Offers:
    """The fused strategies of one program that kernels of `target` in `registry` run."""

    def __init__(self, reading: Reading, target: Target, registry: Registry = REGISTRY) -> None:
        self._reading, self._target, self._registry = reading, target, registry
        self._of_op: dict[str, list[KernelSpec]] = {}
        self._known: dict[object, bool] = {}
        self._readings = Counter(name for node in reading.draft.nodes for name in node.inputs)

    def __call__(self, program: Program, operations: Sequence[Operation], batch: Batch) -> Indices:
        """The columns of a fused batch of `operations` that are offered.

        Those of equal tiles are looked up once; of a reduction's, only the summand that is due
        counts, since how the rest lies follows from it.
        """
        nodes = [self._reading.nodes[operation.name] for operation in operations]
        everything = np.arange(len(batch))
        if batch.kind in PACKED:
            return everything if packable(self._readings, nodes) else everything[:0]
        kernels = self._kernels(REDUCTIONS.get(batch.kind) or CHAINS[batch.kind])
        if not kernels:
            return everything[:0]
        if batch.kind in REDUCTIONS:
            due = _due(program, batch)
            runs, places = self._reduction(nodes, batch, due), {due: batch.places()[due]}
            # Tiles of legal placements fit together, so sizes count for a kernel's traits alone.
            alike = not any(kernel.traits for kernel in kernels)
        else:
            gated = CHAINS[batch.kind] in GATED
            runs = self._gated(nodes, batch) if gated else self._chain(nodes, batch)
            places, alike = batch.places(), False
        if runs is None:
            return everything[:0]
        graphs = [step_graph(program.axes, program.values[name].digits) for name in places]
        if alike:
            return everything if runs(_placed(places, graphs, 0)) else everything[:0]
        every = [due_tiles(program.axes, program.values[name].digits) for name in places]
        pairs = zip(every, places.values(), strict=True)
        first, same = distinct([(tiles.of[row], tiles.count) for tiles, row in pairs])
        offered = [runs(_placed(places, graphs, column)) for column in first.tolist()]
        return np.flatnonzero(np.array(offered, np.bool_)[same])

    def _has_kernel(self, op: str, types: Types, given: Mapping[str, Attribute]) -> bool:
        key = op, types, tuple(given.items())
        if key not in self._known:
            self._known[key] = self._runs(op, types, given)
        return self._known[key]

    def _runs(self, op: str, types: Types, given: Mapping[str, Attribute]) -> bool:
        try:
            attributes = resolve_attributes(OPS[op].schema, given)
            OPS[op].schema.infer(types, attributes)
        except TsError:
            return False
        query = self._query(op, types, attributes)
        return any(misfit(spec, query) is None for spec in self._kernels(op))

    def _kernels(self, op: str) -> list[KernelSpec]:
        """The kernels that the target may run."""
        if op not in self._of_op:
            target = self._target
            self._of_op[op] = [
                spec
                for spec in self._registry.of(op)
                if spec.priority >= PORTABLE and spec.capability.covers(target.device, target.arch)
            ]
        return self._of_op[op]

    def _query(
        self, op: str, types: Types, attributes: Mapping[str, AttributeValue]
    ) -> KernelQuery:
        return KernelQuery(
            op=op,
            mode=self._reading.draft.phase.value,
            dtypes=tuple(None if t is None else t.dtype for t in types),
            shapes=tuple(None if t is None else t.shape for t in types),
            device=self._target.device,
            arch=self._target.arch,
            attributes=attributes,
        )

    def _reduction(self, nodes: Sequence[Node], batch: Batch, due: str) -> Runs | None:
        """Of the summand that is `due` alone: where the rest lies follows from it."""
        first, norm = nodes
        op, mesh = REDUCTIONS[batch.kind], self._reading.mesh
        scatter = op != REDUCTIONS["all_reduce+add+rms_norm"]
        gain = norm.inputs[1]
        assert gain is not None
        held = self._reading.tile(gain, self._reading.operands.slot(gain).value.placements)
        residual = next((name for name in batch.inputs if name != due), None)
        if (first.op == IDENTITY) != (residual is None):
            return None

        def runs(placed: Mapping[str, Placements]) -> bool:
            axes = axes_with(mesh, placed[due], PARTIAL)
            within = reduced(placed[due], scatter=scatter)
            rest = None if residual is None else self._reading.tile(residual, within)
            given = {"axes": axes, "size": mesh.size(axes), "eps": norm.attributes["eps"]}
            return self._has_kernel(op, (self._reading.tile(due, placed[due]), held, rest), given)

        return runs

    def _gated(self, nodes: Sequence[Node], batch: Batch) -> Runs | None:
        gate, up, act = nodes
        if act.inputs != (*gate.outputs, *up.outputs) or set(batch.outputs) != set(act.outputs):
            return None
        if not packable(self._readings, (gate, up)):
            return None

        def runs(placed: Mapping[str, Placements]) -> bool:
            local = self._local([gate], placed)
            x, *weights = (None if name is None else local[name] for name in gate.inputs)
            types = (x, *map(_twice, weights))
            return self._has_kernel(CHAINS[batch.kind], types, gate.attributes)

        return runs

    def _chain(self, nodes: Sequence[Node], batch: Batch) -> Runs | None:
        op = CHAINS[batch.kind]
        try:
            joined = REWRITES[op].join(nodes)
        except FusionError:
            return None
        if not set(batch.outputs) <= set(joined.outputs):
            return None

        def runs(placed: Mapping[str, Placements]) -> bool:
            local = self._local(nodes, placed)
            types = tuple(None if name is None else local[name] for name in joined.inputs)
            return self._has_kernel(op, types, joined.attributes)

        return runs

    def _local(
        self, nodes: Sequence[Node], placed: Mapping[str, Placements]
    ) -> dict[str, TensorType]:
        """One rank's type of every operand of the nodes."""
        known, local = dict(placed), dict[str, TensorType]()
        for node in nodes:
            taken = self._reading.taken(node, known)
            wanted = [
                (n, p) for n, p in zip(node.inputs, taken.inputs, strict=True) if n is not None
            ]
            given = list(zip(node.outputs, taken.outputs, strict=True))
            for name, placements in (*wanted, *given):
                local[name] = self._reading.tile(name, placements)
            known.update(given)
        return local


def _placed(
    places: Mapping[str, Indices], graphs: Sequence[StepGraph], column: int
) -> dict[str, Placements]:
    """Where values lie in one column of their placement numbers."""
    pairs = zip(places.items(), graphs, strict=True)
    return {name: graph.placements[int(row[column])] for (name, row), graph in pairs}


def _due(program: Program, batch: Batch) -> str:
    """The summand that a reduction's columns reduce."""
    entering = dict(zip(batch.inputs, batch.requires, strict=True))
    graphs = [step_graph(program.axes, program.values[name].digits) for name in entering]
    placed = _placed(entering, graphs, 0)
    return next(name for name in entering if PARTIAL in placed[name])


def reduced(due: Placements, *, scatter: bool) -> Placements:
    """Where a sum that is `due` lies once it is reduced, its rows scattered or not."""
    target = Shard(0) if scatter else REPLICATE
    return tuple(target if placement == PARTIAL else placement for placement in due)


def packable(readings: Mapping[str | None, int], nodes: Sequence[Node]) -> bool:
    """Whether `passes.packing` will make the linears one: one input, one parent, own weights.

    `readings` counts how often the program reads each value.
    """
    first = nodes[0]
    parents = {node.module.rpartition(".")[0] for node in nodes}
    alike = all(
        node.inputs[0] == first.inputs[0]
        and [name is None for name in node.inputs] == [name is None for name in first.inputs]
        for node in nodes
    )
    weights = {name for node in nodes for name in node.inputs[1:] if name is not None}
    own = all(readings[name] == 1 for name in weights)
    return alike and len(parents) == 1 and own


def _twice(type_: TensorType | None) -> TensorType | None:
    """The packed weight or bias of two that are alike."""
    if type_ is None:
        return None
    rows, *others = type_.shape
    return replace(type_, shape=(2 * rows, *others))
