"""The certificate of the hand-written plan, written by hand too: the model before any rank."""

from __future__ import annotations

from tiny_plan import HEADS, HIDDEN, KV_HEADS, MAX_LEN, SCALE, VOCAB, WIDTH

from tskernels.schema import AttributeValue, DType
from tsruntime.artifact.proof.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    Rows,
    TracedCache,
    TracedGraph,
    TracedOp,
    TracedParameter,
)

_SHAPES = {
    "tokens": (VOCAB, HIDDEN),
    "places": (MAX_LEN, HIDDEN),
    "query": (HEADS * WIDTH, HIDDEN),
    "key": (KV_HEADS * WIDTH, HIDDEN),
    "value": (KV_HEADS * WIDTH, HIDDEN),
    "o": (HIDDEN, HEADS * WIDTH),
    "head": (VOCAB, HIDDEN),
}


def tiny_certificate() -> Certificate:
    """It holds at all `Sizes`."""
    return Certificate(
        version=CERTIFICATE_VERSION,
        vocab_size=VOCAB,
        parameters=tuple(TracedParameter(n, s, DType.FLOAT32) for n, s in _SHAPES.items()),
        constants=(),
        caches=(TracedCache("cache", 0, "full", KV_HEADS, WIDTH, None, DType.FLOAT32),),
        graphs={"all": _graph("all"), "selected": _graph("selected")},
    )


def _graph(rows: Rows) -> TracedGraph:
    inputs = ["token_ids", "positions", "slot_mapping.full"]
    inputs += ["block_table.full", "seq_lens", "query_starts"]
    ops: list[TracedOp] = []

    def op(name: str, ins: tuple[str | None, ...], out: str, **attributes: AttributeValue) -> None:
        ops.append(TracedOp(name, ins, (out,), attributes, out))

    op("embedding", ("token_ids", "tokens"), "embedded", vocab_start=0)
    op("embedding", ("positions", "places"), "place", vocab_start=0)
    op("add", ("embedded", "place"), "x")
    for name in ("query", "key", "value"):
        op("linear", ("x", name, None), f"{name}.flat")
        op("unflatten", (f"{name}.flat",), f"{name}.heads", size=WIDTH)
    op("kv_write", ("key.heads", "value.heads", "cache", "slot_mapping.full"), "written")
    op(
        "attention",
        ("query.heads", "written", "block_table.full", "seq_lens", "query_starts", None),
        "attended",
        scale=SCALE,
        window=0,
    )
    op("flatten", ("attended",), "flat")
    op("linear", ("flat", "o", None), "out")
    op("add", ("x", "out"), "y")
    if rows == "selected":
        inputs.append("logit_rows")
        op("select_rows", ("y", "logit_rows"), "last")
    op("linear", ("last" if rows == "selected" else "y", "head", None), "logits")
    return TracedGraph(tuple(inputs), tuple(ops), "logits")
