"""qk_norm_rope_kv_write: norms of query and key heads before `rope_kv_write`."""

from __future__ import annotations

from collections.abc import Sequence

from tscompile.ir.graph import Node
from tscompile.rewrites.rewrite import Rewrite, equal_attribute, needs, taken
from tscompile.rewrites.rope_kv_write import ROPE_KV_WRITE

OP = "qk_norm_rope_kv_write"


def _join(nodes: Sequence[Node]) -> Node:
    kinds = ("rms_norm", "rms_norm", "rotary", "rotary", "kv_write")
    query, key, *rest = taken(OP, nodes, kinds)
    rope = ROPE_KV_WRITE.join(rest)
    normed = (*query.outputs, *key.outputs)
    needs(OP, nodes, "other heads are rotated", rope.inputs[:2] == normed)
    _, _, value, table, cache, slots = rope.inputs
    heads = (query.inputs[0], key.inputs[0], value)
    return Node(
        OP,
        (*heads, query.inputs[1], key.inputs[1], table, cache, slots),
        rope.outputs,
        {"eps": equal_attribute(OP, (query, key), "eps"), **rope.attributes},
        rope.module,
    )


QK_NORM_ROPE_KV_WRITE = Rewrite(OP, _join)
