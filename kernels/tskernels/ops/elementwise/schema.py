"""Schemas of the elementwise ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.elementwise import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import ranked, same, same_dtype


def _infer_add(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    a = ranked("add.a", inputs[0], 1, 2, 3)
    b = ranked("add.b", inputs[1], 1, 2, 3)
    same_dtype("add", a=a, b=b)
    same("add shapes", ("a", list(a.shape)), ("b", list(b.shape)))
    return (a,)


def _infer_silu_mul(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    gate = ranked("silu_mul.gate", inputs[0], 2)
    up = ranked("silu_mul.up", inputs[1], 2)
    same_dtype("silu_mul", gate=gate, up=up)
    same("silu_mul shapes", ("gate", list(gate.shape)), ("up", list(up.shape)))
    return (gate,)


add = define(reference.add, _infer_add)
silu_mul = define(reference.silu_mul, _infer_silu_mul)
