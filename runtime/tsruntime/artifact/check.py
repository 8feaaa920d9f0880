"""Rules that a plan must obey before it runs: wiring, types and storage, from the plan alone.

This shares no code with the compiler. What the plan means (placements, reductions) is proven by
the certificate's checker; this proves that executing it touches only what it may.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tskernels.errors import TsError
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, OpKind, TensorType
from tsruntime.artifact.errors import PlanInvalid
from tsruntime.artifact.schema import (
    ArenaStorage,
    Attribute,
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


def check_plan(plan: Plan) -> None:
    """Raise `PlanInvalid` at the first broken rule."""
    seen: set[str] = set()
    for program in plan.programs:
        if program.name in seen:
            raise PlanInvalid(program.name, "two programs have this name")
        seen.add(program.name)
        _ProgramCheck(plan, program).run()


class _ProgramCheck:
    """Walks one program in order, knowing which values exist so far."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self._plan = plan
        self._program = program
        self._values = {value.name: value for value in program.values}
        self._weights = {weight.name: weight for weight in plan.weights}
        self._ready: set[str] = set()

    def run(self) -> None:
        if len(self._values) != len(self._program.values):
            raise self._wrong(self._program.name, "two values have one name")
        for value in self._program.values:
            self._storage(value)
        for op in self._program.ops:
            self._op(op)
        output = self._value(self._program.output, self._program.name)
        if output.name not in self._ready or output.shape[-1] != self._plan.vocab_size:
            raise self._wrong(output.name, "the output is not the logits of the whole vocabulary")

    def _storage(self, value: Value) -> None:
        match value.storage:
            case ArenaStorage() as arena:
                self._arena(value, arena)
                return
            case WeightStorage(weight=name):
                weight = self._weights.get(name)
                fits = weight is not None and _same_type(weight, value)
            case InputStorage(input=name):
                fits = name in self._program.inputs and value.dtype == "int32"
            case CacheStorage(group=name, layer=layer):
                groups = {g.name: g for g in self._plan.kv_cache.groups}
                fits = name in groups and layer in groups[name].layers
        if not fits:
            raise self._wrong(value.name, f"{value.storage} does not exist or has another type")
        self._ready.add(value.name)

    def _arena(self, value: Value, storage: ArenaStorage) -> None:
        if len(storage.strides) != len(value.shape) or storage.offset_bytes < 0:
            raise self._wrong(value.name, "strides do not fit the shape")
        extent = _extent(value.shape, storage.strides)
        end = storage.offset_bytes + extent * value.dtype.itemsize
        if end > self._program.arena_bytes or storage.offset_bytes % value.dtype.itemsize:
            raise self._wrong(
                value.name, f"ends at byte {end} of an arena of {self._program.arena_bytes}"
            )

    def _op(self, op: Op) -> None:
        schema = OPS[op.op].schema if op.op in OPS else None
        if schema is None:
            raise self._wrong(op.module, f"unknown op {op.op!r}")
        if (op.pin == "view") != (schema.kind is OpKind.VIEW):
            raise self._wrong(op.module, f"{op.op} cannot be pinned to {op.pin!r}")
        inputs = [None if name is None else self._input(name, op) for name in op.inputs]
        outputs = [self._value(name, op.module) for name in op.outputs]
        try:
            inferred = schema.infer(inputs, resolved(op.attributes))
        except TsError as error:
            raise self._wrong(op.module, f"{op.op}: {error.message}") from None
        declared = tuple(TensorType(v.dtype, v.shape) for v in outputs)
        if inferred != declared:
            raise self._wrong(op.module, f"{op.op} gives {inferred}, the plan declares {declared}")
        self._ready.update(op.outputs)

    def _input(self, name: str, op: Op) -> TensorType:
        value = self._value(name, op.module)
        if name not in self._ready:
            raise self._wrong(op.module, f"{op.op} reads {name} before anything wrote it")
        return TensorType(value.dtype, value.shape)

    def _value(self, name: str, where: str) -> Value:
        if name not in self._values:
            raise self._wrong(where, f"names the unknown value {name}")
        return self._values[name]

    def _wrong(self, where: str, what: str) -> PlanInvalid:
        return PlanInvalid(f"program {self._program.name}, {where}", what)


def _same_type(weight: Weight, value: Value) -> bool:
    return (weight.shape, weight.dtype) == (value.shape, value.dtype)


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first of a strided tensor to its end; 0 if it is empty."""
    if math.prod(shape) == 0:
        return 0
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def resolved(attributes: Mapping[str, Attribute]) -> Mapping[str, AttributeValue]:
    """Attributes with every `RankIndex` taken at coordinate 0, for shape inference."""
    return dict(_resolve(attributes))


def _resolve(attributes: Mapping[str, Attribute]) -> Iterator[tuple[str, AttributeValue]]:
    for name, value in attributes.items():
        yield name, 0 if isinstance(value, RankIndex) else value
