"""Sizes and options of mixtures of experts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """`experts` networks of `width` each, `top_k` of them a token; the rest as `ops.route` has it.

    `biases` says whether the router and every projection of an expert have one; `activation`,
    `alpha` and `limit` are as `ops.experts` has them. `dense_layers` have a plain MLP instead.
    """

    experts: int
    top_k: int
    width: int
    scoring: str = "softmax"
    normalize: bool = False
    groups: int = 1
    top_groups: int = 1
    scale: float = 1.0
    biases: bool = False
    activation: str = "silu"
    alpha: float = 1.0
    limit: float = 0.0
    dense_layers: frozenset[int] = frozenset()
