"""Operator schemas: the typed signature that models, plans, rules and kernels agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import torch
from torch import Tensor


class DType(StrEnum):
    """Element types a plan may name; the value is torch's own name."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8_E4M3 = "float8_e4m3fn"
    INT64 = "int64"
    INT32 = "int32"
    BOOL = "bool"

    @property
    def torch(self) -> torch.dtype:
        """The torch dtype of the same name."""
        return _TORCH[self]

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _TORCH[self].itemsize

    @property
    def wide(self) -> DType:
        """What a model of this dtype keeps the values in that rounding would spoil."""
        return DType.FLOAT64 if self is DType.FLOAT64 else DType.FLOAT32


_TORCH: Mapping[DType, torch.dtype] = {d: getattr(torch, d.value) for d in DType}

AttributeValue: TypeAlias = bool | int | float | str | tuple[int, ...] | tuple[str, ...]
"""What an op's attribute may hold once it is resolved for one rank."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a static shape."""

    dtype: DType
    shape: tuple[int, ...]


class OpKind(StrEnum):
    """How a plan executes an op."""

    COMPUTE = "compute"  # a kernel reads the inputs and writes the outputs
    VIEW = "view"  # the output aliases the input's storage; nothing runs
    COLLECTIVE = "collective"  # ranks along `axes` exchange data


@dataclass(frozen=True, slots=True)
class Argument:
    """An input of an op."""

    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """A typed, static attribute of an op; one without a default must be given."""

    name: str
    type: type
    default: AttributeValue | None = None


Infer: TypeAlias = Callable[
    [Sequence[TensorType | None], Mapping[str, AttributeValue]], tuple[TensorType, ...]
]
Reference: TypeAlias = Callable[..., "Tensor | tuple[Tensor, ...]"]


@dataclass(frozen=True, slots=True)
class OpSchema:
    """Name, signature, shape function and reference implementation of one operator.

    `infer` maps input types and attributes to output types, and raises `ShapeError` where they
    do not fit. `reference` takes the inputs by position and the attributes by keyword and returns
    fresh tensors; it is exact in the inputs' dtype and serves as the oracle for every kernel.
    `mutates` maps an output's position to the input's position whose storage it takes over (the
    KV cache); `reference` mutates that input and returns it.
    """

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    infer: Infer
    reference: Reference
    kind: OpKind = OpKind.COMPUTE
    mutates: Mapping[int, int] | None = None
