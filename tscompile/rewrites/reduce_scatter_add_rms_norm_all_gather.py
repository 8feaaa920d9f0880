"""reduce_scatter_add_rms_norm_all_gather: the same, and the normed rows gathered again.

The sum's rows may be gathered too, in one exchange with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tscompile.ir.graph import Node
from tscompile.rewrites.reduction import group, reduction
from tscompile.rewrites.rewrite import Rewrite, needs

OP = "reduce_scatter_add_rms_norm_all_gather"


def _join(nodes: Sequence[Node]) -> Node:
    ends = [position for position, node in enumerate(nodes) if node.op == "rms_norm"]
    needs(OP, nodes, "it holds no norm", len(ends) == 1)
    inner = reduction(OP, "reduce_scatter", nodes[: ends[0] + 1])
    gathers = nodes[ends[0] + 1 :]
    gathered = {gather.inputs[0]: gather.outputs[0] for gather in gathers}
    total, normed = inner.outputs
    wanted = ([normed], [normed, total])
    needs(OP, nodes, "it gathers other values", list(gathered) in wanted)
    for gather in gathers:
        needs(OP, nodes, f"{gather.op} is no gather", gather.op == "all_gather")
        needs(OP, nodes, "it gathers columns", gather.attributes["dim"] == 0)
        needs(OP, nodes, "it gathers over other axes", group(gather) == group(nodes[0]))
    return replace(
        inner,
        outputs=(gathered.get(total, total), gathered[normed]),
        attributes={**inner.attributes, "both": total in gathered},
    )


REDUCE_SCATTER_ADD_RMS_NORM_ALL_GATHER = Rewrite(OP, _join)
