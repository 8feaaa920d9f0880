"""Signatures that several kernels share."""

from __future__ import annotations

from tskernels.kernel import Signature
from tskernels.schema import DType

TORCH_FLOATS = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16, DType.FLOAT64)
WIDE_FLOATS = (DType.FLOAT32, DType.FLOAT64)
DEVICE_FLOATS = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)
INDEX = (DType.INT32,)


def floats(*names: str) -> Signature:
    """Inputs `names` in any float type that torch computes in."""
    return dict.fromkeys(names, TORCH_FLOATS)


def device_floats(*names: str) -> Signature:
    """Inputs `names` in any float type that kernels on a GPU compute in."""
    return dict.fromkeys(names, DEVICE_FLOATS)


def float32(*names: str) -> Signature:
    """Inputs `names` in float32 only."""
    return dict.fromkeys(names, (DType.FLOAT32,))


def indices(*names: str) -> Signature:
    """Inputs `names` as int32."""
    return dict.fromkeys(names, INDEX)


def movable(*names: str) -> Signature:
    """Inputs `names` that are only moved: any float type, or int32."""
    return dict.fromkeys(names, (*TORCH_FLOATS, *INDEX))
