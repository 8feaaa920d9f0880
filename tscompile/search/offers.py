"""Which fused strategies of a draft the search is offered: those that a kernel of the target runs.

A strategy is offered where the nodes make up the fused op, where its types fit (a gain of another
dtype does not), and where some registered kernel takes one rank's tiles: what its traits limit,
such as rows beyond which it was measured slower than its parts, is limited here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tscompile.ir.draft import DraftProgram
from tscompile.ir.errors import FusionError
from tscompile.ir.graph import Node
from tscompile.ir.placement import PARTIAL, REPLICATE, Placements, Shard, axes_with
from tscompile.rewrites.table import REWRITES
from tscompile.search.fused_ops import CHAINS, PACKED, REDUCTIONS
from tscompile.search.graph import Indices, StepGraph, step_graph
from tscompile.search.layout import MeshAxes, tile_shape
from tscompile.search.program import Operation, Program
from tscompile.search.reading import Reading
from tscompile.search.strategies import Batch
from tscompile.search.streams import IDENTITY
from tskernels.errors import TsError
from tskernels.kernel import PORTABLE, KernelQuery, KernelSpec
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.registry import REGISTRY, Registry
from tskernels.schema import AttributeValue, TensorType
from tskernels.selection import misfit
from tsruntime.artifact.schema import Attribute, Target

Types = tuple[TensorType | None, ...]


class Offers:
    """The fused strategies of one program that kernels of `target` in `registry` run."""

    def __init__(self, reading: Reading, target: Target, registry: Registry = REGISTRY) -> None:
        self._reading, self._target, self._registry = reading, target, registry

    def __call__(self, program: Program, operations: Sequence[Operation], batch: Batch) -> Indices:
        """The columns of a fused batch of `operations` that are offered.

        Those of equal tiles are looked up once; of a reduction's, only the summand that is due
        counts, since how the rest lies follows from it.
        """
        nodes = [self._reading.nodes[operation.name] for operation in operations]
        everything = np.arange(len(batch))
        if batch.kind in PACKED:
            return everything if packable(self._reading.draft, nodes) else everything[:0]
        if not self._kernels(REDUCTIONS.get(batch.kind) or CHAINS[batch.kind]):
            return everything[:0]
        graphs = [step_graph(program.axes, program.values[name].digits) for name in batch.places()]
        rows = list(batch.places().values())
        keys = [
            np.concatenate([graph.cuts[row], partial[row, None]], axis=1)
            for graph, row in zip(graphs, rows, strict=True)
            for partial in (_partial_ranks(program.axes, graph),)
            if batch.kind not in REDUCTIONS or partial[row].max() > 1
        ]
        _, first, same = np.unique(
            np.concatenate(keys, axis=1), axis=0, return_index=True, return_inverse=True
        )
        offered = [
            self._offered(
                nodes,
                batch,
                {
                    name: graph.placements[int(row[column])]
                    for name, graph, row in zip(batch.places(), graphs, rows, strict=True)
                },
            )
            for column in first.tolist()
        ]
        return np.flatnonzero(np.array(offered, np.bool_)[same.reshape(-1)])

    def _offered(
        self, nodes: Sequence[Node], batch: Batch, placed: Mapping[str, Placements]
    ) -> bool:
        if batch.kind in REDUCTIONS:
            call = self._reduction(nodes, batch, placed)
        elif CHAINS[batch.kind] == "linear_silu_mul":
            call = self._gated(nodes, batch, placed)
        else:
            call = self._chain(nodes, batch, placed)
        return call is not None and self._has_kernel(*call)

    def _has_kernel(self, op: str, types: Types, given: Mapping[str, Attribute]) -> bool:
        try:
            attributes = resolve_attributes(OPS[op].schema, given)
            OPS[op].schema.infer(types, attributes)
        except TsError:
            return False
        query = self._query(op, types, attributes)
        return any(misfit(spec, query) is None for spec in self._kernels(op))

    def _kernels(self, op: str) -> list[KernelSpec]:
        """The kernels that the target may run."""
        target = self._target
        return [
            spec
            for spec in self._registry.of(op)
            if spec.priority >= PORTABLE and spec.capability.covers(target.device, target.arch)
        ]

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

    def _tile(self, name: str, placements: Placements) -> TensorType:
        type_ = self._reading.operands.slot(name).value.type
        return replace(type_, shape=tile_shape(self._reading.axes, type_.shape, placements))

    def _reduction(
        self, nodes: Sequence[Node], batch: Batch, placed: Mapping[str, Placements]
    ) -> tuple[str, Types, Mapping[str, Attribute]] | None:
        first, norm = nodes
        op, mesh = REDUCTIONS[batch.kind], self._reading.mesh
        due = next(name for name in batch.inputs if PARTIAL in placed[name])
        within = reduced(placed[due], scatter=op != REDUCTIONS["all_reduce+add+rms_norm"])
        axes = axes_with(mesh, placed[due], PARTIAL)
        gain = norm.inputs[1]
        assert gain is not None
        residual = next((name for name in batch.inputs if name != due), None)
        if (first.op == IDENTITY) != (residual is None):
            return None
        types = (
            self._tile(due, placed[due]),
            self._tile(gain, self._reading.operands.slot(gain).value.placements),
            None if residual is None else self._tile(residual, within),
        )
        given = {"axes": axes, "size": mesh.size(axes), "eps": norm.attributes["eps"]}
        return op, types, given

    def _gated(
        self, nodes: Sequence[Node], batch: Batch, placed: Mapping[str, Placements]
    ) -> tuple[str, Types, Mapping[str, Attribute]] | None:
        gate, up, act = nodes
        if act.inputs != (*gate.outputs, *up.outputs) or set(batch.outputs) != set(act.outputs):
            return None
        if not packable(self._reading.draft, (gate, up)):
            return None
        local = self._local([gate], placed)
        x, weight, bias = (None if name is None else local[name] for name in gate.inputs)
        return CHAINS[batch.kind], (x, _twice(weight), _twice(bias)), {}

    def _chain(
        self, nodes: Sequence[Node], batch: Batch, placed: Mapping[str, Placements]
    ) -> tuple[str, Types, Mapping[str, Attribute]] | None:
        op = CHAINS[batch.kind]
        try:
            joined = REWRITES[op].join(nodes)
        except FusionError:
            return None
        if not set(batch.outputs) <= set(joined.outputs):
            return None
        local = self._local(nodes, placed)
        types = tuple(None if name is None else local[name] for name in joined.inputs)
        return op, types, joined.attributes

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
                local[name] = self._tile(name, placements)
            known.update(given)
        return local


def reduced(due: Placements, *, scatter: bool) -> Placements:
    """Where a sum that is `due` lies once it is reduced, its rows scattered or not."""
    target = Shard(0) if scatter else REPLICATE
    return tuple(target if placement == PARTIAL else placement for placement in due)


def packable(draft: DraftProgram, nodes: Sequence[Node]) -> bool:
    """Whether `passes.packing` will make the linears one: one input, one parent, own weights."""
    first = nodes[0]
    parents = {node.module.rpartition(".")[0] for node in nodes}
    alike = all(
        node.inputs[0] == first.inputs[0] and (node.inputs[2] is None) == (first.inputs[2] is None)
        for node in nodes
    )
    weights = {name for node in nodes for name in node.inputs[1:] if name is not None}
    readings = [name for node in draft.nodes for name in node.inputs if name in weights]
    return alike and len(parents) == 1 and len(readings) == len(weights)


def _twice(type_: TensorType | None) -> TensorType | None:
    """The packed weight or bias of two that are alike."""
    if type_ is None:
        return None
    rows, *others = type_.shape
    return replace(type_, shape=(2 * rows, *others))


def _partial_ranks(axes: MeshAxes, graph: StepGraph) -> Indices:
    """Over how many ranks each placement is due to be reduced."""
    ranks = np.ones(len(graph.placements), np.int64)
    numbers = np.arange(len(graph.placements))
    for axis, choices, stride in zip(axes, graph.choices, graph.strides, strict=True):
        partial = np.array([choice == PARTIAL for choice in choices], np.bool_)
        ranks *= np.where(partial[numbers // stride % len(choices)], axis.size, 1)
    return ranks
