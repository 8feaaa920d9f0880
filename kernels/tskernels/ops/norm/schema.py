"""Schema of RMS normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.norm import reference
from tskernels.schema import AttributeValue, TensorType
from tskernels.shapes import ranked, same, same_dtype


def _infer_rms_norm(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("rms_norm.x", inputs[0], 2, 3)
    weight = ranked("rms_norm.weight", inputs[1], 1)
    same_dtype("rms_norm", x=x, weight=weight)
    same("rms_norm width", ("x.shape[-1]", x.shape[-1]), ("len(weight)", weight.shape[0]))
    return (x,)


rms_norm = define(reference.rms_norm, _infer_rms_norm)
