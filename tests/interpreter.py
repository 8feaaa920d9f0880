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
from tskernels.ops.collectives import group
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
    WeightStorage,
)


def shard(plan: Plan, weight: Weight, tensors: Mapping[str, Tensor], rank: int) -> Tensor:
    """One rank's tensor of a weight, cut from the whole checkpoint."""
    if weight.constant is not None:
        return torch.tensor(weight.constant, dtype=weight.dtype.torch)
    parts: list[Tensor] = []
    for part in weight.parts:
        whole = tensors[part.tensor].to(weight.dtype.torch)
        if part.dim is not None:
            missing = (part.padded or part.shape[part.dim]) - part.shape[part.dim]
            zeros = whole.new_zeros(
                [*whole.shape[: part.dim], missing, *whole.shape[part.dim + 1 :]]
            )
            pieces = torch.cat((whole, zeros), part.dim).chunk(plan.mesh.size(part.axes), part.dim)
            whole = pieces[plan.mesh.coordinate(rank, part.axes)]
        parts.append(whole)
    return torch.cat(parts)


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
            results = self._collective(op, [cast("Tensor", i[0]) for i in inputs])
        else:
            results = [
                schema.reference(*inputs[r], **resolve_attributes(schema, self._attributes(op, r)))
                for r in self.ranks
            ]
        if schema.mutates is None:
            for target, result in zip(values[op.outputs[0]], results, strict=True):
                target.copy_(cast("Tensor", result))

    def _attributes(self, op: Op, rank: int) -> dict[str, object]:
        mesh = self.plan.mesh
        return {
            name: mesh.coordinate(rank, a.axes) * a.stride if isinstance(a, RankIndex) else a
            for name, a in op.attributes.items()
        }

    def _collective(self, op: Op, shards: list[Tensor]) -> list[Tensor]:
        given = dict(op.attributes)
        axes, size = cast("tuple[str, ...]", given.pop("axes")), given.pop("size")
        run = getattr(group, op.op)
        results: dict[int, Tensor] = {}
        for rank in self.ranks:
            members = self.plan.mesh.members(rank, axes)
            assert len(members) == size
            if rank == members[0]:
                results.update(
                    zip(members, run([shards[m] for m in members], **given), strict=True)
                )
        return [results[rank] for rank in self.ranks]


def program_named(plan: Plan, name: str) -> Program:
    """The program of that name."""
    return next(p for p in plan.programs if p.name == name)
