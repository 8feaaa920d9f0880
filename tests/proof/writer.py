"""Writes a program op by op: types inferred, storage given, views placed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tskernels.ops import OPS
from tskernels.schema import AttributeValue, DType, OpKind, TensorType
from tsruntime.artifact.schema import (
    SCHEMA_VERSION,
    ArenaStorage,
    Attribute,
    KvCache,
    Limits,
    Mesh,
    Op,
    Phase,
    Plan,
    Program,
    RankIndex,
    Storage,
    Target,
    Value,
    Weight,
)

Axes = tuple[str, ...]


@dataclass
class Writer:
    """Collects a program's values and ops; every op's result gets bytes of its own."""

    mesh: Mesh
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    ops: list[Op] = field(default_factory=list[Op])
    end: int = 0

    def bind(self, name: str, dtype: DType, shape: Sequence[int], storage: Storage) -> str:
        """A value that comes from outside."""
        self.values[name] = Value(name, dtype, tuple(shape), storage)
        return name

    def op(self, op: str, *inputs: str | None, module: str = "", **attributes: Attribute) -> str:
        """Append an op of one output and name it after the module."""
        return self.ops_of(op, inputs, module, attributes)[0]

    def ops_of(
        self,
        op: str,
        inputs: Sequence[str | None],
        module: str,
        attributes: Mapping[str, Attribute],
    ) -> tuple[str, ...]:
        """Append an op and give its outputs' names."""
        schema = OPS[op].schema
        full: dict[str, Attribute] = {
            a.name: a.default for a in schema.attributes if a.default is not None
        } | dict(attributes)
        here: dict[str, AttributeValue] = {
            name: 0 if isinstance(value, RankIndex) else value for name, value in full.items()
        }
        sources = [None if i is None else self.values[i] for i in inputs]
        types = schema.infer(
            [None if s is None else TensorType(s.dtype, s.shape) for s in sources], here
        )
        names = tuple(f"{len(self.ops)}.{op}.{i}" for i in range(len(types)))
        offset = 0
        for name, type_ in zip(names, types, strict=True):
            storage = self._storage(op, sources, type_, offset, here)
            self.values[name] = Value(name, type_.dtype, type_.shape, storage)
            offset += type_.shape[-1]
        pin = "view" if schema.kind is OpKind.VIEW else f"{op}.reference"
        pin = f"{op}.communicator" if schema.kind is OpKind.COLLECTIVE else pin
        self.ops.append(Op(op, pin, tuple(inputs), names, full, module))
        return names

    def _storage(
        self,
        op: str,
        sources: Sequence[Value | None],
        type_: TensorType,
        offset: int,
        attributes: Mapping[str, AttributeValue],
    ) -> Storage:
        if op == "kv_write":
            assert sources[2] is not None
            return sources[2].storage
        source = sources[0]
        if OPS[op].schema.kind is OpKind.VIEW:
            assert source is not None
            assert isinstance(source.storage, ArenaStorage)
            return _view(op, source.storage, type_, offset, attributes)
        strides = tuple(math.prod(type_.shape[i + 1 :]) for i in range(len(type_.shape)))
        start = self.end
        self.end += math.prod(type_.shape) * type_.dtype.itemsize
        return ArenaStorage(start, strides)

    def program(
        self, phase: Phase, tokens: int, sequences: int, inputs: tuple[str, ...], output: str
    ) -> Program:
        """The program as written so far: logits of the last tokens."""
        return Program(
            name=f"{phase}_{tokens}x{sequences}",
            phase=phase,
            tokens=tokens,
            sequences=sequences,
            logits="last",
            inputs=inputs,
            values=tuple(self.values.values()),
            ops=tuple(self.ops),
            output=output,
            arena_bytes=self.end,
        )

    def all_reduce(self, x: str, axes: Axes) -> str:
        return self.op("all_reduce", x, axes=axes, size=self.mesh.size(axes)) if axes else x

    def all_gather(self, x: str, axes: Axes, dim: int = 0) -> str:
        if not axes:
            return x
        return self.op("all_gather", x, axes=axes, size=self.mesh.size(axes), dim=dim)

    def reduce_scatter(self, x: str, axes: Axes, dim: int = 0) -> str:
        if not axes:
            return x
        return self.op("reduce_scatter", x, axes=axes, size=self.mesh.size(axes), dim=dim)

    def slice_rows(self, x: str, axes: Axes) -> str:
        size = self.values[x].shape[0] // self.mesh.size(axes)
        return self.op("slice", x, dim=0, start=RankIndex(axes, size), size=size)

    def mask(self, x: str, axes: Axes) -> str:
        return self.op("mask", x, coordinate=RankIndex(axes, 1)) if axes else x


def plan_of(
    name: str,
    mesh: Mesh,
    dtype: DType,
    vocab_size: int,
    limits: Limits,
    kv_cache: KvCache,
    weights: Mapping[str, Weight],
    programs: Sequence[Program],
) -> Plan:
    """A plan for the CPU."""
    return Plan(
        schema_version=SCHEMA_VERSION,
        name=name,
        architecture=name,
        target=Target("cpu", "any", "cpu-gloo"),
        mesh=mesh,
        dtype=dtype,
        vocab_size=vocab_size,
        limits=limits,
        kv_cache=kv_cache,
        weights=tuple(weights.values()),
        programs=tuple(programs),
    )


def _view(
    op: str,
    source: ArenaStorage,
    type_: TensorType,
    offset: int,
    attributes: Mapping[str, AttributeValue],
) -> ArenaStorage:
    match op:
        case "split":
            place = source.offset_bytes + offset * type_.dtype.itemsize
            return ArenaStorage(place, source.strides)
        case "unflatten":
            return ArenaStorage(source.offset_bytes, (source.strides[0], type_.shape[2], 1))
        case "flatten":
            return ArenaStorage(source.offset_bytes, (source.strides[0], 1))
        case _:
            start, dim = attributes["start"], attributes["dim"]
            assert isinstance(start, int)
            assert isinstance(dim, int)
            step = source.strides[dim] * type_.dtype.itemsize
            return ArenaStorage(source.offset_bytes + start * step, source.strides)
