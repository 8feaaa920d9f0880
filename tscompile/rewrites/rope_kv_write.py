"""rope_kv_write: rotation of queries and keys, and the write of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from tscompile.ir.graph import Node
from tscompile.rewrites.rewrite import Rewrite, equal_attribute, needs, taken

OP = "rope_kv_write"


def _join(nodes: Sequence[Node]) -> Node:
    query, key, write = taken(OP, nodes, ("rotary", "rotary", "kv_write"))
    needs(OP, nodes, "other keys are written", write.inputs[0] == key.outputs[0])
    needs(OP, nodes, "their tables differ", query.inputs[1] == key.inputs[1])
    _, value, cache, slots = write.inputs
    return Node(
        OP,
        (query.inputs[0], key.inputs[0], value, key.inputs[1], cache, slots),
        (*query.outputs, *write.outputs),
        {"interleaved": equal_attribute(OP, nodes[:2], "interleaved")},
        write.module,
    )


ROPE_KV_WRITE = Rewrite(OP, _join)
