"""Runs a frozen plan of all ranks in one process, by the ops' references and real buffers.

Arenas and caches begin as NaN, so that a value read before it is written shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.ops.grouped import grouped
from tskernels.schema import OpKind
from tsruntime.artifact.schema import (
    ArenaStorage,
    CacheStorage,
    InputStorage,
    Op,
    Plan,
    Program,
    RankIndex,
    Value,
    Weight,
    WeightPart,
    WeightStorage,
)


def shard(plan: Plan, weight: Weight, tensors: Mapping[str, Tensor], rank: int) -> Tensor:
    """One rank's tensor of a weight, cut from the whole checkpoint."""
    if weight.constant is not None:
        return torch.tensor(weight.constant, dtype=weight.dtype.torch)
    return torch.cat([_cut(plan, part, tensors[part.tensor], rank) for part in weight.parts]).to(
        weight.dtype.torch
    )


def _cut(plan: Plan, part: WeightPart, whole: Tensor, rank: int) -> Tensor:
    def piece(tensor: Tensor, axes: tuple[str, ...], dim: int) -> Tensor:
        return tensor.chunk(plan.mesh.size(axes), dim)[plan.mesh.coordinate(rank, axes)]

    stacked = part.stack is not None
    if part.stack is not None:
        whole = piece(whole, part.stack.axes, 0)
    if part.dim is None:
        return whole
    dim, missing = part.dim + stacked, (part.padded or 0) - part.shape[part.dim]
    zeros = whole.new_zeros([*whole.shape[:dim], max(missing, 0), *whole.shape[dim + 1 :]])
    return piece(torch.cat((whole, zeros), dim), part.axes, dim)


class Interpreter:
    """A plan with its weights loaded and its caches allocated, for all ranks."""

    def __init__(self, plan: Plan, tensors: Mapping[str, Tensor]) -> None:
        self.plan, self.ranks = plan, range(plan.mesh.world)
        self.weights = [
            {w.name: shard(plan, w, tensors, rank) for w in plan.weights} for rank in self.ranks
        ]
        pages, size = plan.kv_cache.pages, plan.kv_cache.page_size
        self.caches = [
            {
                (g.name, layer): torch.full(
                    (pages, g.planes, g.kv_heads, size, g.head_dim),
                    torch.nan,
                    dtype=g.dtype.torch,
                )
                for g in plan.kv_cache.groups
                for layer in g.layers
            }
            for _ in self.ranks
        ]

    def run(self, name: str, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Each rank's output of the program `name`."""
        program = next(p for p in self.plan.programs if p.name == name)
        arenas = [torch.full((program.arena_bytes,), 0xFF, dtype=torch.uint8) for _ in self.ranks]
        values = {
            v.name: [self._bind(v, inputs, arenas, r) for r in self.ranks] for v in program.values
        }
        for op in program.ops:
            if OPS[op.op].schema.kind is not OpKind.VIEW:
                self._step(op, values)
        return [tensor.clone() for tensor in values[program.output]]

    def _bind(
        self, value: Value, inputs: Mapping[str, Tensor], arenas: list[Tensor], rank: int
    ) -> Tensor:
        match value.storage:
            case ArenaStorage(offset_bytes=offset, strides=strides):
                arena = arenas[rank].view(value.dtype.torch)
                return arena.as_strided(value.shape, strides, offset // value.dtype.itemsize)
            case WeightStorage(weight=weight):
                tensor = self.weights[rank][weight]
            case InputStorage(input=name):
                tensor = inputs[name]
            case CacheStorage(group=name, layer=layer):
                tensor = self.caches[rank][name, layer]
        assert tuple(tensor.shape) == value.shape, value.name
        return tensor

    def _step(self, op: Op, values: Mapping[str, list[Tensor]]) -> None:
        schema = OPS[op.op].schema
        inputs = [[None if i is None else values[i][r] for i in op.inputs] for r in self.ranks]
        if schema.kind is OpKind.COLLECTIVE:
            results = self._collective(op, inputs)
        else:
            results = [
                _each(
                    schema.reference(
                        *inputs[r], **resolve_attributes(schema, self._attributes(op, r))
                    )
                )
                for r in self.ranks
            ]
        for position, name in enumerate(op.outputs):
            if position not in (schema.mutates or {}):
                for target, result in zip(values[name], results, strict=True):
                    target.copy_(result[position])

    def _attributes(self, op: Op, rank: int) -> dict[str, object]:
        mesh = self.plan.mesh
        return {
            name: mesh.coordinate(rank, a.axes) * a.stride if isinstance(a, RankIndex) else a
            for name, a in op.attributes.items()
        }

    def _collective(self, op: Op, inputs: list[list[Tensor | None]]) -> list[tuple[Tensor, ...]]:
        given = dict(op.attributes)
        axes, size = cast("tuple[str, ...]", given["axes"]), given["size"]
        results: dict[int, tuple[Tensor, ...]] = {}
        for rank in self.ranks:
            members = self.plan.mesh.members(rank, axes)
            assert len(members) == size
            if rank == members[0]:
                got = grouped(op.op, [inputs[m] for m in members], given)
                results.update(zip(members, got, strict=True))
        return [results[rank] for rank in self.ranks]


def _each(result: object) -> tuple[Tensor, ...]:
    """The outputs of an op, which has one or several."""
    return cast("tuple[Tensor, ...]", result if isinstance(result, tuple) else (result,))


def program_named(plan: Plan, name: str) -> Program:
    """The program of that name."""
    return next(p for p in plan.programs if p.name == name)
