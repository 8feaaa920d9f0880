"""How weights lie in files: safetensors, the tensors in the plan's order, the header by rule.

Format: https://huggingface.co/docs/safetensors (8-byte little-endian header length, JSON header,
data). The header is padded with spaces so that the data begins on a 64-byte boundary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tskernels.schema import DType
from tsruntime.artifact.schema import Plan, Weight, weight_file

ALIGNMENT: Final = 64
"""Bytes: a cache line, so that vector loads of mapped weights never straddle two lines."""

_NAMES: Final[Mapping[DType, str]] = {
    DType.FLOAT64: "F64",
    DType.FLOAT32: "F32",
    DType.BFLOAT16: "BF16",
    DType.FLOAT16: "F16",
    DType.FLOAT8_E4M3: "F8_E4M3",
    DType.INT64: "I64",
    DType.INT32: "I32",
    DType.BOOL: "BOOL",
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """What a header says of one tensor."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @classmethod
    def of(cls, weight: Weight) -> TensorEntry:
        """Of a weight as each rank holds it."""
        return cls(weight.name, DType(weight.dtype), weight.shape)

    @property
    def bytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * self.dtype.itemsize


def stored_weights(plan: Plan) -> tuple[Weight, ...]:
    """The weights that take bytes in the artifact: none where they are generated."""
    if plan.dummy_seed is not None:
        return ()
    return tuple(weight for weight in plan.weights if weight.constant is None)


def rank_files(plan: Plan, rank: int) -> Mapping[str, Sequence[Weight]]:
    """The files under `weights/` that `rank` reads, and the weights in each, as they follow."""
    files: dict[str, list[Weight]] = {}
    for weight in stored_weights(plan):
        files.setdefault(weight_file(plan.mesh, weight, rank), []).append(weight)
    return files


def header(entries: Sequence[TensorEntry]) -> bytes:
    """What a file of the tensors `entries` begins with; their data follow in that order."""
    tensors: dict[str, object] = {}
    offset = 0
    for entry in entries:
        tensors[entry.name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [offset, offset + entry.bytes],
        }
        offset += entry.bytes
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
