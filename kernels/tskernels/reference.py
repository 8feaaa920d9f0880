"""The REFERENCE solution of every op that computes, made from its schema's reference."""

from __future__ import annotations

from tskernels.kernel import REFERENCE, BoundCall, Kernel, KernelSpec
from tskernels.ops import OPS
from tskernels.schema import OpKind, OpSchema


def bind_reference(schema: OpSchema, call: BoundCall) -> Kernel:
    """A kernel that runs `schema.reference` and copies what it returns into the outputs."""
    mutated = schema.mutates or {}
    copied = [i for i in range(len(call.outputs)) if i not in mutated]

    def run() -> None:
        results = schema.reference(*call.inputs, **call.attributes)
        values = results if isinstance(results, tuple) else (results,)
        for i in copied:
            call.outputs[i].copy_(values[i])

    return run


def _spec(schema: OpSchema) -> KernelSpec:
    return KernelSpec(
        op=schema.name,
        solution="reference",
        bind=lambda call: bind_reference(schema, call),
        priority=REFERENCE,
    )


SPECS = tuple(_spec(op.schema) for op in OPS.values() if op.schema.kind is OpKind.COMPUTE)
