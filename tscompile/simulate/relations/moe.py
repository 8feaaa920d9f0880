"""How the sizes of routing and of the experts are related."""

from __future__ import annotations

from tscompile.simulate.relations.base import Dims, Scope, name_of
from tsruntime.artifact.proof.certificate import TracedOp


def route(dims: Dims, names: Scope, op: TracedOp) -> None:
    """A row a slot; both results as wide as a row has choices, which stay as many."""
    logits = name_of(op, 0)
    for other in (name_of(op, 1), *op.outputs):
        dims.same(names(logits, 0), names(other, 0))
    dims.same(*(names(output, 1) for output in op.outputs))
    if op.inputs[2] is not None:
        dims.same(names(logits, 1), names(op.inputs[2], 0))
    dims.kept.update((names(logits, 1), names(op.outputs[0], 1)))


def experts(dims: Dims, names: Scope, op: TracedOp) -> None:
    """Rows as its input; all weights of as many experts, of one width."""
    x, ids, weights, gate, up, down = (name_of(op, i) for i in range(6))
    for other in (ids, weights, op.outputs[0]):
        dims.same(names(x, 0), names(other, 0))
    dims.same(names(x, 1), names(gate, 2), names(up, 2), names(down, 1), names(op.outputs[0], 1))
    dims.same(names(ids, 1), names(weights, 1))
    dims.same(names(gate, 0), names(up, 0), names(down, 0))
    dims.same(names(gate, 1), names(up, 1), names(down, 2))
    for bias, wide in ((op.inputs[6], gate), (op.inputs[7], up), (op.inputs[8], down)):
        if bias is not None:
            dims.same(names(bias, 0), names(wide, 0))
            dims.same(names(bias, 1), names(wide, 1))
    dims.kept.add(names(gate, 0))
