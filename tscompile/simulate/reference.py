"""The unsharded program, run by the ops' references for each attention replica on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from tscompile.simulate.world import PADDING_TOKEN
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tsruntime.artifact.proof.certificate import Certificate, Rows, TracedCache, TracedGraph
from tsruntime.artifact.schema import NULL_PAGE, Plan


class Reference:
    """The certificate's graphs in float64 with whole `tensors`, and a whole cache a replica."""

    def __init__(
        self, certificate: Certificate, tensors: Mapping[str, Tensor], plan: Plan, replicas: int
    ) -> None:
        self.certificate = certificate
        self._fixed = dict(tensors)
        for constant in certificate.constants:
            self._fixed[constant.name] = torch.tensor(constant.values, dtype=torch.float64)
        pages, size = plan.kv_cache.pages, plan.kv_cache.page_size
        self.caches = [
            {c.name: _cache(pages, c, size) for c in certificate.caches} for _ in range(replicas)
        ]

    def run(self, rows: Rows, inputs: Sequence[Mapping[str, Tensor]]) -> list[dict[str, Tensor]]:
        """Every value of the graph by name, for each replica's inputs; caches are written."""
        graph = self.certificate.graphs[rows]
        return [self._run(graph, replica, given) for replica, given in enumerate(inputs)]

    def _run(
        self, graph: TracedGraph, replica: int, inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        values = {**self._fixed, **inputs, **self.caches[replica]}
        for op in graph.ops:
            schema = OPS[op.op].schema
            operands = [None if name is None else values[name] for name in op.inputs]
            attributes = resolve_attributes(schema, op.attributes)
            results = schema.reference(*operands, **attributes)
            outputs = results if isinstance(results, tuple) else (results,)
            values.update(zip(op.outputs, outputs, strict=True))
            if op.op == "embedding":
                ids = cast("Tensor", operands[0])
                values[op.outputs[0]][ids == PADDING_TOKEN] = torch.nan
        return values


def _cache(pages: int, cache: TracedCache, page_size: int) -> Tensor:
    shape = (pages, cache.planes, cache.kv_heads, page_size, cache.head_dim)
    pool = torch.full(shape, torch.nan, dtype=torch.float64)
    pool[NULL_PAGE] = 0
    return pool
