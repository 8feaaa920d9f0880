"""Binding: a program's values become tensors, its ops become kernels without arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from tskernels.communicator import Communicator
from tskernels.kernel import BoundCall
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.registry import REGISTRY
from tskernels.schema import AttributeValue, DType
from tsruntime.artifact.schema import (
    ArenaStorage,
    Attribute,
    CacheStorage,
    InputStorage,
    Mesh,
    Op,
    Program,
    RankIndex,
    Value,
    WeightStorage,
)
from tsruntime.executor.inputs import InputBuffers
from tsruntime.kv_cache.pool import KvPools

VIEW_PIN = "view"
"""Pin of an op whose outputs alias its input: nothing runs."""

Communicators: TypeAlias = Callable[[tuple[str, ...]], Communicator]
"""The communicator of this rank along some mesh axes, innermost first."""


class TensorStore(Protocol):
    """Where a rank's weights come from."""

    def tensor(self, name: str) -> Tensor:
        """The plan's weight `name` as this rank holds it."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that values of a program may live in, on one rank."""

    arena: Tensor
    weights: Mapping[str, Tensor]
    inputs: InputBuffers
    pools: KvPools


@dataclass(frozen=True, slots=True)
class Step:
    """One op that runs: its entry in the plan and its bound kernel."""

    op: Op
    run: Callable[[], None]


def bind_values(program: Program, memory: Memory) -> Mapping[str, Tensor]:
    """A tensor for each value of `program`, by name; nothing is copied."""
    return {value.name: _tensor(value, program, memory) for value in program.values}


def bind_steps(
    program: Program,
    values: Mapping[str, Tensor],
    mesh: Mesh,
    rank: int,
    communicators: Communicators,
) -> tuple[Step, ...]:
    """The ops of `program` that run on `rank`, in order; views are left out."""
    return tuple(
        Step(op, bind_kernel(op, values, mesh, rank, communicators))
        for op in program.ops
        if op.pin != VIEW_PIN
    )


def resolve(
    attributes: Mapping[str, Attribute], mesh: Mesh, rank: int
) -> Mapping[str, AttributeValue]:
    """The attributes with every RankIndex replaced by `rank`'s own number."""
    return {
        name: mesh.coordinate(rank, value.axes) * value.stride
        if isinstance(value, RankIndex)
        else value
        for name, value in attributes.items()
    }


def _tensor(value: Value, program: Program, memory: Memory) -> Tensor:
    storage = value.storage
    match storage:
        case ArenaStorage():
            return _arena_view(memory.arena, value.dtype, value.shape, storage)
        case WeightStorage():
            tensor = memory.weights[storage.weight]
        case InputStorage():
            tensor = memory.inputs.tensor(storage.input, program)
        case CacheStorage():
            tensor = memory.pools.layer(storage.group, storage.layer)
    if tuple(tensor.shape) != value.shape or tensor.dtype != value.dtype.torch:
        raise ValueError(
            f"{program.name}: {value.name} is {value.dtype} {value.shape} in the plan, but its"
            f" {storage.kind} holds {tensor.dtype} {tuple(tensor.shape)}"
        )
    return tensor


def _arena_view(
    arena: Tensor, dtype: DType, shape: tuple[int, ...], storage: ArenaStorage
) -> Tensor:
    offset, misaligned = divmod(storage.offset_bytes, dtype.itemsize)
    if misaligned:
        raise ValueError(f"arena offset {storage.offset_bytes} is not a multiple of {dtype}'s size")
    view = torch.empty(0, dtype=dtype.torch, device=arena.device)
    return view.set_(arena.untyped_storage(), offset, shape, storage.strides)  # pyright: ignore[reportUnknownMemberType]


def bind_kernel(
    op: Op,
    values: Mapping[str, Tensor],
    mesh: Mesh,
    rank: int,
    communicators: Communicators,
) -> Callable[[], None]:
    """The kernel of one op, by its pin in the registry."""
    attributes = resolve_attributes(OPS[op.op].schema, resolve(op.attributes, mesh, rank))
    axes = op.attributes.get("axes")
    call = BoundCall(
        inputs=tuple(None if name is None else values[name] for name in op.inputs),
        outputs=tuple(values[name] for name in op.outputs),
        attributes=attributes,
        communicator=communicators(tuple(str(a) for a in axes))
        if isinstance(axes, tuple)
        else None,
    )
    return REGISTRY.resolve(op.pin).bind(call)
