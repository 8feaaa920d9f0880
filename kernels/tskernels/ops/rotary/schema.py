"""Schemas of the rotary position embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.rotary import reference
from tskernels.schema import AttributeValue, DType, TensorType
from tskernels.shapes import floating, integer, ranked, require, same


def _infer_rotary_table(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    positions = ranked("rotary_table.positions", inputs[0], 1)
    inv_freq = ranked("rotary_table.inv_freq", inputs[1], 1)
    integer("rotary_table.positions", positions)
    _wide("rotary_table.inv_freq", inv_freq)
    return (TensorType(inv_freq.dtype, (positions.shape[0], 2 * inv_freq.shape[0])),)


def _infer_rotary(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("rotary.x", inputs[0], 3)
    table = ranked("rotary.table", inputs[1], 2)
    floating("rotary.x", x)
    _wide("rotary.table", table)
    same("rotary tokens", ("x.shape[0]", x.shape[0]), ("table.shape[0]", table.shape[0]))
    width = table.shape[1]
    require(width % 2 == 0, f"rotary.table has {width} columns, but needs an even number")
    require(
        width <= x.shape[2],
        f"rotary.table has {width} columns, but a head of x has only {x.shape[2]}",
    )
    return (x,)


def _wide(where: str, value: TensorType) -> None:
    wide = value.dtype in (DType.FLOAT32, DType.FLOAT64)
    require(wide, f"{where} has dtype {value.dtype}, but must be float32 or float64")


rotary_table = define(reference.rotary_table, _infer_rotary_table)
rotary = define(reference.rotary, _infer_rotary)
