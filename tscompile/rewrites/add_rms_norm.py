"""add_rms_norm: the residual's addition and the norm of the sum."""

from __future__ import annotations

from collections.abc import Sequence

from tscompile.ir.graph import Node
from tscompile.rewrites.rewrite import Rewrite, needs, taken

OP = "add_rms_norm"


def _join(nodes: Sequence[Node]) -> Node:
    add, norm = taken(OP, nodes, ("add", "rms_norm"))
    needs(OP, nodes, "the norm is of another value", norm.inputs[0] == add.outputs[0])
    inputs = (*add.inputs, norm.inputs[1])
    return Node(OP, inputs, (*add.outputs, *norm.outputs), norm.attributes, norm.module)


ADD_RMS_NORM = Rewrite(OP, _join)
