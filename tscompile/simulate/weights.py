"""Whole weights for a simulation, and the shards of them that the plan says each rank reads."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.schema import Plan, Weight, WeightPart, part_tensors, weight_file
from tsruntime.artifact.weights import constant, held_tensors, shard_range


def random_weights(certificate: Certificate, seed: int) -> dict[str, Tensor]:
    """Every parameter drawn anew in float64: gains and blocks' scales about 1, biases of size 0.5.

    Matrices have unit gain. Nothing is zero or one, so that a bias added twice or a gain left out
    shows.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for parameter in certificate.parameters:
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if parameter.name.endswith("bias"):
            tensors[parameter.name] = 0.5 * noise
        elif len(parameter.shape) == 1 or parameter.name.endswith("_scale_inv"):
            tensors[parameter.name] = 1.0 + 0.3 * noise
        else:
            tensors[parameter.name] = noise / parameter.shape[-1] ** 0.5
    return tensors


class Shards:
    """The weights of `rank`, cut from whole `tensors` as the artifact's files are."""

    def __init__(self, plan: Plan, tensors: Mapping[str, Tensor], rank: int) -> None:
        self._plan, self._tensors, self._rank = plan, tensors, rank
        self._weights = {weight.name: weight for weight in plan.weights}

    def tensor(self, name: str) -> Tensor:
        """The local tensor of the plan's weight `name`."""
        weight = self._weights[name]
        if weight.constant is not None:
            return constant(weight)
        rank = self._writer(weight)
        parts = [self._part(part, rank) for part in weight.parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _writer(self, weight: Weight) -> int:
        """The rank for which the file that this rank reads is cut: the first one that reads it."""
        mesh = self._plan.mesh
        file = weight_file(mesh, weight, self._rank)
        return next(r for r in range(mesh.world) if weight_file(mesh, weight, r) == file)

    def _part(self, part: WeightPart, rank: int) -> Tensor:
        whole, dim = self._tensors[part.tensor], part.dim or 0
        if part.stack is not None:
            names, held = part_tensors(part), held_tensors(self._plan, part, rank)
            whole = whole.narrow(0, names.index(held[0]), len(held))
            dim += 1
        start, kept, padding = shard_range(self._plan, part, rank)
        shard = whole.narrow(dim, start, kept)
        if not padding:
            return shard.contiguous()
        shape = list(shard.shape)
        shape[dim] = padding
        return torch.cat([shard, shard.new_zeros(shape)], dim=dim)
