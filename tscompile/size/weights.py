"""Bytes of a model's weights on one rank, for any sizes of the parallel groups, without placing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import torch

from tscompile.ir.errors import MeshError
from tscompile.ir.graph import Graph, Parameter
from tscompile.ir.mesh import ParallelSizes, build_mesh, divisors
from tscompile.ir.placement import local_shape
from tscompile.models import build
from tscompile.models.config import ModelConfig
from tscompile.models.sizes import size_problems
from tscompile.passes.binding import bind_weights
from tscompile.trace import trace
from tskernels.schema import DType


@dataclass(frozen=True, slots=True)
class Weighed:
    """A model's parameters, each distinct one once with how many there are."""

    config: ModelConfig
    dtype: DType
    graph: Graph
    counts: tuple[int, ...]

    @classmethod
    def of(cls, config: ModelConfig, dtype: DType) -> Weighed:
        """Of the traced model; no weight is read."""
        with torch.device("meta"):
            graph = trace(build(config), "selected")
        alike = Counter(replace(parameter, name="") for parameter in graph.parameters)
        distinct = tuple(replace(p, name=str(i)) for i, p in enumerate(alike))
        return cls(config, dtype, _of(graph, distinct), tuple(alike.values()))

    def rank_bytes(self, sizes: ParallelSizes) -> int:
        """The least that a rank holds: weights that may lie in several ways lie where it is least.

        Raises MeshError and ShardSizeError for sizes that are not legal.
        """
        mesh = build_mesh(sizes, self.config.kv_heads)
        weights = [w for w in bind_weights(self.graph, mesh, self.dtype).values() if w.parts]
        return sum(
            count
            * weight.type.dtype.itemsize
            * min(
                prod(local_shape(mesh, weight.type.shape, placed))
                for placed in weight.layouts or (weight.placements,)
            )
            for weight, count in zip(weights, self.counts, strict=True)
        )


def _of(graph: Graph, parameters: tuple[Parameter, ...]) -> Graph:
    return replace(graph, parameters=parameters, constants=())


def legal_sizes(config: ModelConfig, world: int) -> Iterator[ParallelSizes]:
    """Every choice of group sizes for `world` ranks that nests and divides the model."""
    shares = divisors(world)
    experts = shares if config.moe is not None else [1]
    for attn_tp, dense_tp, moe_tp, moe_ep in product(shares, shares, experts, experts):
        if world % (moe_tp * moe_ep):
            continue
        sizes = ParallelSizes(world, attn_tp, dense_tp, moe_tp, moe_ep)
        try:
            build_mesh(sizes, config.kv_heads)
        except MeshError:
            continue
        if not size_problems(config, sizes):
            yield sizes
