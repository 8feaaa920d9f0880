"""linear_silu_mul: the packed product of gate and up, and silu(gate) * up."""

from __future__ import annotations

from collections.abc import Sequence

from tscompile.ir.graph import Node
from tscompile.rewrites.rewrite import Rewrite, needs, taken

OP = "linear_silu_mul"


def _join(nodes: Sequence[Node]) -> Node:
    linear, split, act = taken(OP, nodes, ("linear", "split", "silu_mul"))
    needs(OP, nodes, "another product is split", split.inputs == linear.outputs)
    needs(OP, nodes, "its activation is not of gate and up", act.inputs == split.outputs)
    return Node(OP, linear.inputs, act.outputs, {}, act.module)


LINEAR_SILU_MUL = Rewrite(OP, _join)
