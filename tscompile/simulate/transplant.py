"""The same plan in float64, by reference kernels: what is simulated instead of the target's."""

from __future__ import annotations

from dataclasses import replace

from tskernels.ops import OPS
from tskernels.schema import DType, OpKind
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.schema import ArenaStorage, Op, Plan, Program, Target, Value

_FLOATS = (
    DType.FLOAT64,
    DType.FLOAT32,
    DType.BFLOAT16,
    DType.FLOAT16,
    DType.FLOAT8_E4M3,
)


def plan_in_float64(plan: Plan) -> Plan:
    """Every floating value float64, every kernel the reference; the arena keeps its overlaps.

    Arena offsets are stretched alike, by what the narrowest type grows.
    """
    narrowest = min(
        (
            value.dtype.itemsize
            for program in plan.programs
            for value in program.values
            if value.dtype in _FLOATS and isinstance(value.storage, ArenaStorage)
        ),
        default=DType.FLOAT64.itemsize,
    )
    stretch = DType.FLOAT64.itemsize // narrowest
    groups = tuple(replace(g, dtype=_wide(g.dtype)) for g in plan.kv_cache.groups)
    return replace(
        plan,
        target=Target("cpu", "any", plan.target.topology),
        dtype=DType.FLOAT64,
        kv_cache=replace(plan.kv_cache, groups=groups),
        weights=tuple(replace(w, dtype=_wide(w.dtype)) for w in plan.weights),
        programs=tuple(_program(program, stretch) for program in plan.programs),
        dummy_seed=None,
    )


def certificate_in_float64(certificate: Certificate) -> Certificate:
    """The same computation in float64."""
    return replace(
        certificate,
        parameters=tuple(replace(p, dtype=_wide(p.dtype)) for p in certificate.parameters),
        constants=tuple(replace(c, dtype=_wide(c.dtype)) for c in certificate.constants),
        caches=tuple(replace(c, dtype=_wide(c.dtype)) for c in certificate.caches),
    )


def _wide(dtype: DType) -> DType:
    return DType.FLOAT64 if dtype in _FLOATS else dtype


def _program(program: Program, stretch: int) -> Program:
    return replace(
        program,
        values=tuple(_value(value, stretch) for value in program.values),
        ops=tuple(replace(op, pin=_pin(op)) for op in program.ops),
        arena_bytes=program.arena_bytes * stretch,
    )


def _value(value: Value, stretch: int) -> Value:
    storage = value.storage
    if isinstance(storage, ArenaStorage):
        storage = replace(storage, offset_bytes=storage.offset_bytes * stretch)
    return replace(value, dtype=_wide(value.dtype), storage=storage)


def _pin(op: Op) -> str:
    match OPS[op.op].schema.kind:
        case OpKind.VIEW:
            return "view"
        case OpKind.COLLECTIVE:
            return f"{op.op}.communicator"
        case OpKind.COMPUTE:
            return f"{op.op}.reference"
