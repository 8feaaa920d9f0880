"""The invariants of nodes that the search took as one, and of the fused ops that they become."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tscompile.ir.alike import Applied
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.graph import Node
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tskernels.ops import OPS
from tskernels.schema import OpKind
from tsruntime.artifact.schema import Mesh

_GATHERED = (PARTIAL, Shard(0), REPLICATE)
_SCATTERED = (PARTIAL, Shard(0), Shard(0))

_ALONG: dict[str, tuple[Placement, Placement, Placement]] = {
    "all_reduce_add_rms_norm": (PARTIAL, REPLICATE, REPLICATE),
    "reduce_scatter_add_rms_norm": _SCATTERED,
    "reduce_scatter_add_rms_norm_all_gather": _GATHERED,
}
"""Along a fused reduction's axes: its summands, the residual and sum in between, what is normed."""


def marked_nodes_stand_together(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """The nodes of one mark follow one another, and it names an operator."""
    seen: set[str] = set()
    for mark, _ in groupby(program.nodes, key=lambda node: node.fused):
        op = mark.partition(":")[0]
        if mark and op not in OPS:
            yield f"the mark {mark} names no operator"
        if mark and mark in seen:
            yield f"the nodes of {mark} stand apart"
        seen.add(mark)


def collectives_are_written(mesh: Mesh, one: Applied) -> Iterator[str]:
    """No mark of a fused collective is left."""
    if (op := one.node.fused.partition(":")[0]) and OPS[op].schema.kind is OpKind.COLLECTIVE:
        yield _marked(one.node)


def no_mark_is_left(mesh: Mesh, one: Applied) -> Iterator[str]:
    """Every fused strategy is written as its op."""
    if one.node.fused:
        yield _marked(one.node)


def _marked(node: Node) -> str:
    return f"{node.op} of {node.outputs[0]} is still marked as part of {node.fused}"


def reductions_change_what_they_say(mesh: Mesh, one: Applied) -> Iterator[str]:
    """A fused reduction takes its axes from Partial to what its name says, others nowhere."""
    node = one.node
    if node.op not in _ALONG:
        return
    axes = node.attributes["axes"]
    assert isinstance(axes, tuple)
    if node.attributes["size"] != mesh.size(tuple(map(str, axes))):
        yield f"{node.op} of {node.outputs[0]} has size {node.attributes['size']}"
    for index, axis in enumerate(mesh.axes):
        found = _placed(one, index)
        wanted = _wanted(node, inside=axis.name in axes, summand=found[0])
        if not all(a in (None, b) for a, b in zip(found, wanted, strict=True)):
            shown = ", ".join("-" if p is None else str(p) for p in found)
            yield f"{node.op} of {node.outputs[1]} has ({shown}) along axis {axis.name}"


def _placed(one: Applied, index: int) -> tuple[Placement | None, ...]:
    """Along one axis: summands, residual, sum and what is normed."""
    x, _, residual = one.inputs
    return tuple(None if v is None else v.placements[index] for v in (x, residual, *one.outputs))


def _wanted(node: Node, *, inside: bool, summand: Placement | None) -> tuple[Placement, ...]:
    if not inside:
        kept = summand if summand in (REPLICATE, Shard(0)) else REPLICATE
        assert kept is not None
        return (kept,) * 4
    partial, residual, normed = _ALONG[node.op]
    total = normed if node.attributes.get("both") else residual
    return (partial, residual, total, normed)
