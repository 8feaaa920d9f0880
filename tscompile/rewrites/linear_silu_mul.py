"""linear_silu_mul: the packed product of gate and up, and silu(gate) * up; also of scaled ones."""

from __future__ import annotations

from collections.abc import Sequence

from tscompile.ir.graph import Node
from tscompile.rewrites.rewrite import Rewrite, needs, taken


def _rewrite(product: str) -> Rewrite:
    """The rewrite of a packed `product`, whose attributes the fused op has too."""
    op = f"{product}_silu_mul"

    def join(nodes: Sequence[Node]) -> Node:
        linear, split, act = taken(op, nodes, (product, "split", "silu_mul"))
        needs(op, nodes, "another product is split", split.inputs == linear.outputs)
        needs(op, nodes, "its activation is not of gate and up", act.inputs == split.outputs)
        return Node(op, linear.inputs, act.outputs, linear.attributes, act.module)

    return Rewrite(op, join)


LINEAR_SILU_MUL = _rewrite("linear")
SCALED_LINEAR_SILU_MUL = _rewrite("scaled_linear")
