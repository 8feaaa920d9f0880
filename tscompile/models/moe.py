"""Mixture-of-experts modules: the experts' stacked weights, and a router in front of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tscompile.ir.mesh import MOE_EP, MOE_TP, MOE_TP_EP
from tscompile.models.annotations import Annotation, Replicate, Shard, WeightAnnotation
from tscompile.models.config.moe import MoeConfig
from tscompile.models.layers import Linear
from tskernels import ops


class Experts(nn.Module):
    """The networks of all experts, weights stacked along dim 0: one parameter, many tensors.

    The experts are cut over MOE_EP, the width of each over MOE_TP; `down_proj_bias` is added once
    (the compiler masks it).
    """

    gate_proj: nn.Parameter
    up_proj: nn.Parameter
    down_proj: nn.Parameter
    gate_proj_bias: nn.Parameter | None
    up_proj_bias: nn.Parameter | None
    down_proj_bias: nn.Parameter | None

    def __init__(self, hidden: int, moe: MoeConfig) -> None:
        super().__init__()
        placements: dict[str, WeightAnnotation] = {}
        stacks: dict[str, str] = {}
        wide, narrow = (moe.width, hidden), (hidden, moe.width)
        for name, shape, cut in (
            ("gate_proj", wide, 0),
            ("up_proj", wide, 0),
            ("down_proj", narrow, 1),
        ):
            rows, each = shape[:1], Shard(MOE_EP, dim=0)
            self.register_parameter(name, nn.Parameter(torch.empty(moe.experts, *shape)))
            placements[name] = (each, Shard(MOE_TP, dim=cut + 1))
            stacks[name] = f"{{}}.{name}.weight"
            bias = nn.Parameter(torch.empty(moe.experts, *rows)) if moe.biases else None
            self.register_parameter(f"{name}_bias", bias)
            width = Shard(MOE_TP, dim=1) if cut == 0 else Replicate(MOE_TP)
            placements[f"{name}_bias"] = (each, width)
            stacks[f"{name}_bias"] = f"{{}}.{name}.bias"
        self.placements: Mapping[str, WeightAnnotation] = placements
        self.stacks: Mapping[str, str] = stacks
        self.activation, self.alpha, self.limit = moe.activation, moe.alpha, moe.limit

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """Weighted sum [T, H] over the chosen experts: x [T, H], ids and weights [T, k]."""
        return ops.experts(
            x,
            ids,
            weights,
            self.gate_proj,
            self.up_proj,
            self.down_proj,
            self.gate_proj_bias,
            self.up_proj_bias,
            self.down_proj_bias,
            activation=self.activation,
            alpha=self.alpha,
            limit=self.limit,
        )


def routed(moe: MoeConfig, logits: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """`ops.route` as `moe` has it: weights and ids [T, k] from logits [T, E]."""
    return ops.route(
        logits,
        slots,
        top_k=moe.top_k,
        scoring=moe.scoring,
        normalize=moe.normalize,
        groups=moe.groups,
        top_groups=moe.top_groups,
        scale=moe.scale,
    )


class SparseMoe(nn.Module):
    """A linear router and the experts that it chooses.

    No boundary is annotated: how tokens come to the experts is for the compiler to choose.
    """

    def __init__(self, hidden: int, moe: MoeConfig) -> None:
        super().__init__()
        everywhere = Replicate(MOE_TP_EP)
        self.gate = Linear(hidden, moe.experts, bias=moe.biases, placement=everywhere)
        self.experts = Experts(hidden, moe)
        self.moe = moe

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        """X [T, H] to [T, H]; `slots` [T] of a cache group tell padding rows."""
        weights, ids = routed(self.moe, self.gate(x), slots)
        return self.experts(x, ids, weights)


class CorrectedGate(nn.Module):
    """Router whose `e_score_correction_bias` [E] balances the load: it chooses, nothing else."""

    wide = frozenset({"e_score_correction_bias"})
    """Parameters kept in float32: the bias decides between scores that lie close together."""

    def __init__(self, hidden: int, moe: MoeConfig) -> None:
        super().__init__()
        self.moe = moe
        self.weight = nn.Parameter(torch.empty(moe.experts, hidden))
        self.e_score_correction_bias = nn.Parameter(torch.empty(moe.experts))
        everywhere: Annotation = Replicate(MOE_TP_EP)
        self.placements: Mapping[str, Annotation] = {
            "weight": everywhere,
            "e_score_correction_bias": everywhere,
        }

    def forward(self, x: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and ids [T, k] of the experts of each row of x [T, H]; none for slot 0."""
        return ops.route(
            ops.linear(x, self.weight),
            slots,
            self.e_score_correction_bias,
            top_k=self.moe.top_k,
            scoring=self.moe.scoring,
            normalize=self.moe.normalize,
            groups=self.moe.groups,
            top_groups=self.moe.top_groups,
            scale=self.moe.scale,
        )
