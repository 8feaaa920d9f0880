"""Writing the certificate: what the model computes, as traced, before any rank exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from tscompile.ir.graph import Graph, Node, cache_name
from tscompile.ir.request import CompileRequest
from tscompile.models import build
from tscompile.trace import trace
from tskernels.schema import AttributeValue, DType
from tsruntime.artifact.proof.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    Rows,
    TracedCache,
    TracedConstant,
    TracedGraph,
    TracedOp,
    TracedParameter,
)


def certify(request: CompileRequest) -> Certificate:
    """The certificate of every plan that `request` may compile to.

    It traces the model anew, so that it owes nothing to what the passes made of their own trace.
    """
    with torch.device("meta"):
        model = build(request.model)
    graphs: dict[Rows, Graph] = {
        "all": trace(model, "all"),
        "selected": trace(model, "selected"),
    }
    return certificate(graphs, request.model.vocab_size, request.dtype, request.kv.dtype)


def certificate(
    graphs: Mapping[Rows, Graph], vocab_size: int, dtype: DType, kv_dtype: DType
) -> Certificate:
    """The certificate of `graphs`, weights and activations in `dtype`, the cache in `kv_dtype`.

    Constants and wide parameters are float32, or float64 in a float64 plan; quantized ones float8.
    """
    graph = graphs["all"]
    return Certificate(
        version=CERTIFICATE_VERSION,
        vocab_size=vocab_size,
        parameters=tuple(
            TracedParameter(p.name, p.shape, p.dtype(dtype)) for p in graph.parameters
        ),
        constants=tuple(TracedConstant(c.name, dtype.wide, c.values) for c in graph.constants),
        caches=tuple(
            TracedCache(
                name=cache_name(index),
                layer=index,
                group=layer.group,
                kv_heads=layer.kv_heads,
                head_dim=layer.head_dim,
                window=layer.window or None,
                dtype=kv_dtype,
                planes=layer.planes,
            )
            for index, layer in enumerate(graph.caches)
        ),
        graphs={rows: _traced(graphs[rows]) for rows in sorted(graphs)},
    )


def _traced(graph: Graph) -> TracedGraph:
    return TracedGraph(graph.inputs, tuple(_op(node) for node in graph.nodes), graph.output)


def _op(node: Node) -> TracedOp:
    attributes = cast("Mapping[str, AttributeValue]", node.attributes)  # no rank exists yet
    return TracedOp(node.op, node.inputs, node.outputs, attributes, node.module)
