"""An `identity` before norms of rows, so that a reduction can go into the norm's kernel.

Where an `add` comes right before a norm, a fused kernel reduces one of its summands. What no add
gives (an embedding, selected rows, a linear's output) needs an op that stands for it: the sum
without residual. It costs nothing and vanishes when it is not fused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import Node

IDENTITY = "identity"

_SOURCES = frozenset({"embedding", "select_rows", "linear", "scaled_linear"})


def with_identities(draft: DraftProgram) -> DraftProgram:
    """The program with the identities, whose outputs are read from there on."""
    values = dict(draft.values)
    makers = {name: node for node in draft.nodes for name in node.outputs}
    renamed: dict[str, str] = {}
    nodes: list[Node] = []
    for node in draft.nodes:
        source = node.inputs[0]
        if source is not None and source not in renamed and _begins(node, source, makers, values):
            stream = f"{source}.stream"
            values[stream] = replace(values[source], name=stream)
            nodes.append(Node(IDENTITY, (source,), (stream,), {}, node.module))
            renamed[source] = stream
        inputs = tuple(None if name is None else renamed.get(name, name) for name in node.inputs)
        nodes.append(node.reading(inputs))
    entering = (edge for edge in draft.edges if edge.side == "input" and edge.value in renamed)
    edges = (*draft.edges, *(replace(edge, value=renamed[edge.value]) for edge in entering))
    output = renamed.get(draft.output, draft.output)
    return replace(draft, values=values, nodes=tuple(nodes), edges=edges, output=output)


def _begins(
    node: Node, source: str, makers: Mapping[str, Node], values: Mapping[str, DraftValue]
) -> bool:
    rows = node.op == "rms_norm" and len(values[source].type.shape) == 2
    return rows and source in makers and makers[source].op in _SOURCES
