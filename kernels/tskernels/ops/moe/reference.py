"""References of routing and of the experts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

TINY = 1e-20
"""Keeps a sum of weights that all vanish from dividing by zero, as DeepSeek V3's code does."""


def route(
    logits: Tensor,
    slots: Tensor,
    bias: Tensor | None = None,
    *,
    top_k: int,
    scoring: str = "softmax",
    normalize: bool = False,
    groups: int = 1,
    top_groups: int = 1,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Choose `top_k` experts a row: weights [T, top_k] in the logits' dtype, ids [T, top_k] int32.

    logits [T, E]; slots [T] of the KV cache; bias [E] of any floating dtype. Scores are the
    `scoring` of the logits: "softmax" over all experts, "sigmoid", or "softmax_topk", which
    chooses by the logits and takes the softmax over the chosen ones (GPT-OSS). Experts are chosen
    by score plus bias, the weights are the scores without it (DeepSeek V3, arXiv 2412.19437,
    section 2.1.2). With `groups` > 1 only experts of the `top_groups` groups whose best two sum
    highest are eligible. `normalize` divides a row's weights by their sum; then `scale` multiplies.
    A row's ids stand by falling score, of equal ones the lowest id (or group) first. A row of slot
    0 (padding) reaches no expert: ids -1, weights 0. Computed in float32, float64 for float64.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scores = _scores(wide, scoring)
    ranked = scores if bias is None else scores + bias.to(wide.dtype)
    if groups > 1:
        ranked = _in_best_groups(ranked, groups, top_groups)
    ids = _best(ranked, top_k)
    weights = scores.gather(1, ids)
    if scoring == "softmax_topk":
        weights = weights.softmax(dim=1)
    if normalize:
        weights = weights / (weights.sum(dim=1, keepdim=True) + TINY)
    padding = (slots == 0).unsqueeze(1)
    weights = (weights * scale).masked_fill(padding, 0.0).to(logits.dtype)
    return weights, ids.int().masked_fill(padding, -1)


def _scores(logits: Tensor, scoring: str) -> Tensor:
    if scoring == "softmax":
        return logits.softmax(dim=1)
    return logits.sigmoid() if scoring == "sigmoid" else logits


def _best(scores: Tensor, count: int) -> Tensor:
    """Indices [T, count] of the largest, falling; argmax gives the first of equal ones."""
    left = scores.clone()
    found: list[Tensor] = []
    for _ in range(count):
        found.append(left.argmax(dim=1, keepdim=True))
        left.scatter_(1, found[-1], float("-inf"))
    return torch.cat(found, dim=1)


def _in_best_groups(scores: Tensor, groups: int, top_groups: int) -> Tensor:
    """Scores, minus infinity outside the best groups."""
    grouped = scores.view(scores.shape[0], groups, -1)
    pairs = grouped.topk(min(2, grouped.shape[2]), dim=2).values.sum(dim=2)
    outside = torch.ones_like(pairs, dtype=torch.bool)
    outside.scatter_(1, _best(pairs, top_groups), value=False)
    return grouped.masked_fill(outside.unsqueeze(2), float("-inf")).flatten(1)


def experts(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    gate_bias: Tensor | None = None,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    *,
    expert_start: int = 0,
    activation: str = "silu",
    alpha: float = 1.0,
    limit: float = 0.0,
) -> Tensor:
    """Sum over a row's experts of weight * down(activation(gate(x), up(x))): x [T, H] to [T, H].

    ids [T, k] int32 and weights [T, k] as `route` gives them; gate, up [E, F, H]; down [E, H, F];
    gate_bias, up_bias [E, F]; down_bias [E, H]. The shard holds the experts expert_start to
    expert_start + E - 1; any other id adds nothing, so that the sum over all shards is the whole,
    and a row without an expert here is zero whatever it holds. `activation` is "silu", silu(g) * u,
    or "swiglu", (u + 1) * g * sigmoid(alpha * g) with g at most `limit` and u within +-limit
    (GPT-OSS). Products in the inputs' dtype, summed in float32 (float64 for float64).
    """
    total = x.new_zeros(x.shape, dtype=torch.promote_types(x.dtype, torch.float32))
    for e in range(gate.shape[0]):
        rows, places = torch.where(ids == e + expert_start)
        g = functional.linear(x[rows], gate[e], None if gate_bias is None else gate_bias[e])
        u = functional.linear(x[rows], up[e], None if up_bias is None else up_bias[e])
        inner = _activate(g, u, activation, alpha, limit)
        y = functional.linear(inner, down[e], None if down_bias is None else down_bias[e])
        weighted = y.to(total.dtype) * weights[rows, places].to(total.dtype).unsqueeze(1)
        total.index_add_(0, rows, weighted)
    return total.to(x.dtype)


def _activate(g: Tensor, u: Tensor, activation: str, alpha: float, limit: float) -> Tensor:
    if activation == "silu":
        return functional.silu(g) * u
    g, u = g.clamp(max=limit), u.clamp(min=-limit, max=limit)
    return (u + 1) * (g * torch.sigmoid(g * alpha))
