"""Weights of one rank: mapped from the artifact's files, generated, or constant."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tsruntime.artifact.dummy import generate
from tsruntime.artifact.errors import ArtifactDamaged, WeightsAbsent
from tsruntime.artifact.schema import Plan, Weight, WeightPart, part_tensors, weight_file


class _Mapped(Protocol):
    """What is used of `safe_open`, whose own stubs are untyped."""

    def get_tensor(self, name: str) -> Tensor: ...


class WeightStore:
    """Gives each weight of `plan` as `rank` holds it, on `device`.

    On the CPU files are mapped, not copied.
    """

    def __init__(self, path: Path, plan: Plan, rank: int, device: str = "cpu") -> None:
        self._path = path
        self._plan = plan
        self._rank = rank
        self._device = device
        self._weights = {weight.name: weight for weight in plan.weights}
        self._open: dict[str, _Mapped] = {}

    def tensor(self, name: str) -> Tensor:
        """The local tensor of weight `name`."""
        weight = self._weights[name]
        if weight.constant is not None:
            return constant(weight).to(self._device)
        if self._plan.dummy_seed is not None:
            return dummy(self._plan, weight, self._rank, self._device)
        return self._mapped(weight)

    def _mapped(self, weight: Weight) -> Tensor:
        file = weight_file(self._plan.mesh, weight, self._rank)
        try:
            tensor = self._file(file).get_tensor(weight.name)
        except SafetensorError as error:
            raise ArtifactDamaged(self._path, f"weights/{file}: {error}") from None
        found, wanted = (tuple(tensor.shape), tensor.dtype), (weight.shape, weight.dtype.torch)
        if found != wanted:
            raise ArtifactDamaged(
                self._path, f"weights/{file}: {weight.name} is {found}, the plan says {wanted}"
            )
        return tensor

    def _file(self, name: str) -> _Mapped:
        if name not in self._open:
            path = self._path / "weights" / name
            if not path.is_file():
                raise WeightsAbsent(self._path, name)
            self._open[name] = cast("_Mapped", safe_open(path, framework="pt", device=self._device))
        return self._open[name]


def constant(weight: Weight) -> Tensor:
    """The tensor of a weight that the plan gives by value."""
    values = torch.tensor(weight.constant, dtype=torch.float64)
    return values.to(weight.dtype.torch).reshape(weight.shape)


def dummy(plan: Plan, weight: Weight, rank: int, device: str = "cpu") -> Tensor:
    """The generated tensor of a weight: its parts' shards one after another."""
    assert plan.dummy_seed is not None
    parts = [_dummy_part(plan, weight, part, rank, device) for part in weight.parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def shard_range(plan: Plan, part: WeightPart, rank: int) -> tuple[int, int, int]:
    """(start, rows kept, rows of zeros after them) of `part`'s dim for `rank`, of each tensor.

    A part that is not sharded keeps its whole dim 0.
    """
    if part.dim is None:
        return 0, part.shape[0], 0
    size = part.shape[part.dim]
    local = (part.padded or size) // plan.mesh.size(part.axes)
    start = local * plan.mesh.coordinate(rank, part.axes)
    kept = max(0, min(size, start + local) - start)
    return min(start, size), kept, local - kept


def held_tensors(plan: Plan, part: WeightPart, rank: int) -> tuple[str, ...]:
    """Names of the checkpoint tensors of which `rank` holds something: its own of a stack."""
    names = part_tensors(part)
    if part.stack is None:
        return names
    held = part.stack.count // plan.mesh.size(part.stack.axes)
    first = held * plan.mesh.coordinate(rank, part.stack.axes)
    return names[first : first + held]


def _dummy_part(plan: Plan, weight: Weight, part: WeightPart, rank: int, device: str) -> Tensor:
    shards = [
        _dummy_tensor(plan, weight, part, name, rank, device)
        for name in held_tensors(plan, part, rank)
    ]
    return shards[0] if part.stack is None else torch.stack(shards)


def _dummy_tensor(
    plan: Plan, weight: Weight, part: WeightPart, name: str, rank: int, device: str
) -> Tensor:
    assert plan.dummy_seed is not None
    dim = part.dim or 0
    start, kept, padding = shard_range(plan, part, rank)
    dtype, seed = weight.dtype.torch, plan.dummy_seed
    tensor = generate(seed, name, part.shape, dtype, dim=dim, start=start, size=kept, device=device)
    if not padding:
        return tensor
    shape = list(part.shape)
    shape[dim] = padding
    return torch.cat([tensor, tensor.new_zeros(shape)], dim=dim)


def weight_bytes(plan: Plan) -> int:
    """Bytes of weights that one rank holds."""
    return sum(math.prod(w.shape) * w.dtype.itemsize for w in plan.weights)
