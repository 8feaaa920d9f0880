"""Checks that shape functions share; each failure is a ShapeError that names both values."""

from __future__ import annotations

from collections.abc import Mapping

from tskernels.errors import TsError
from tskernels.schema import AttributeValue, DType, TensorType

FLOATING = (DType.FLOAT64, DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)
INTEGER = (DType.INT32, DType.INT64)


class ShapeError(TsError):
    """An op was given inputs whose shapes, dtypes or attributes do not fit together."""

    code = "TS0401"
    summary = "An operator's inputs do not fit together."


def require(condition: bool, message: str) -> None:
    """Raise ShapeError with `message` unless `condition` holds."""
    if not condition:
        raise ShapeError(
            message, remedy="make the op's inputs agree; its docstring in tskernels.ops gives them"
        )


def ranked(where: str, value: TensorType | None, *ranks: int) -> TensorType:
    """`value`, which must be there and have one of `ranks` dims."""
    wanted = " or ".join(str(rank) for rank in ranks)
    require(value is not None, f"{where} is missing; it takes {wanted} dims")
    assert value is not None
    got = len(value.shape)
    require(got in ranks, f"{where} has {got} dims {list(value.shape)}, but takes {wanted}")
    return value


def floating(where: str, value: TensorType) -> None:
    """Check that `value` holds floating-point numbers."""
    require(value.dtype in FLOATING, f"{where} has dtype {value.dtype}, but must be floating")


def integer(where: str, value: TensorType) -> None:
    """Check that `value` holds int32 (or int64, which only references take)."""
    require(value.dtype in INTEGER, f"{where} has dtype {value.dtype}, but must be int32")


def same(what: str, first: tuple[str, object], second: tuple[str, object]) -> None:
    """Check that two named values of the op or dimension `what` are equal."""
    message = f"{what}: {first[0]} is {first[1]}, but {second[0]} is {second[1]}"
    require(first[1] == second[1], message)


def same_dtype(op: str, **values: TensorType) -> None:
    """Check that all `values` have one floating dtype."""
    (first_name, first), *rest = values.items()
    floating(f"{op}.{first_name}", first)
    for name, value in rest:
        same(f"{op} dtypes", (first_name, first.dtype), (name, value.dtype))


def integer_attribute(attributes: Mapping[str, AttributeValue], name: str) -> int:
    """An attribute that the schema types as int."""
    value = attributes[name]
    assert type(value) is int
    return value


def normal_dim(op: str, dim: int, value: TensorType) -> int:
    """`dim` counted from the front; negative ones count from the back."""
    rank = len(value.shape)
    require(-rank <= dim < rank, f"{op}: dim is {dim}, but the input has {rank} dims")
    return dim % rank


def resized(value: TensorType, dim: int, size: int) -> TensorType:
    """`value` with the size of `dim` replaced."""
    return TensorType(value.dtype, (*value.shape[:dim], size, *value.shape[dim + 1 :]))
