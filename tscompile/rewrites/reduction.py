"""What the rewrites of reductions share: a collective, the residual's addition, and the norm."""

from __future__ import annotations

from collections.abc import Sequence

from tscompile.ir.graph import Node
from tscompile.rewrites.rewrite import needs, refuse
from tsruntime.artifact.schema import Attribute


def reduction(op: str, kind: str, nodes: Sequence[Node]) -> Node:
    """The node of `op` for a collective `kind`, an `add` or none, and an `rms_norm`.

    Its inputs are the summands, the gain and the residual; its outputs the sum and what is normed.
    """
    kinds = [node.op for node in nodes]
    if kinds not in ([kind, "add", "rms_norm"], [kind, "rms_norm"]):
        refuse(op, nodes, f"it joins {kind}, add (or none) and rms_norm, not {', '.join(kinds)}")
    collective, norm, add = nodes[0], nodes[-1], nodes[1] if len(nodes) == 3 else None
    needs(op, nodes, "it reduces by another operator", collective.attributes["reduce"] == "sum")
    needs(op, nodes, "it scatters columns", collective.attributes.get("dim", 0) == 0)
    reduced = collective.outputs[0]
    total, residual = reduced, None
    if add is not None:
        others = [name for name in add.inputs if name != reduced]
        needs(op, nodes, "another value is added", len(others) == 1)
        total, residual = add.outputs[0], others[0]
    needs(op, nodes, "the norm is of another value", norm.inputs[0] == total)
    return Node(
        op,
        (collective.inputs[0], norm.inputs[1], residual),
        (total, *norm.outputs),
        {**group(collective), "eps": norm.attributes["eps"]},
        norm.module,
    )


def group(collective: Node) -> dict[str, Attribute]:
    """The axes and size of a collective."""
    return {name: collective.attributes[name] for name in ("axes", "size")}
