"""What every rank of a group gets from any collective op, over all their inputs at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from torch import Tensor

from tskernels.ops.collectives import group
from tskernels.ops.fused_collectives import group as fused

_PLAIN: Mapping[str, Callable[..., list[Tensor]]] = MappingProxyType(
    {
        "all_reduce": group.all_reduce,
        "all_gather": group.all_gather,
        "reduce_scatter": group.reduce_scatter,
        "all_to_all": group.all_to_all,
    }
)
_FUSED: Mapping[str, Callable[..., list[tuple[Tensor, Tensor]]]] = MappingProxyType(
    {
        "all_reduce_add_rms_norm": fused.all_reduce_add_rms_norm,
        "reduce_scatter_add_rms_norm": fused.reduce_scatter_add_rms_norm,
        "reduce_scatter_add_rms_norm_all_gather": fused.reduce_scatter_add_rms_norm_all_gather,
    }
)


def grouped(
    op: str, members: Sequence[Sequence[Tensor | None]], attributes: Mapping[str, Any]
) -> Sequence[tuple[Tensor, ...]]:
    """Each member's outputs of `op`, given each member's inputs by coordinate.

    KeyError where `op` is no collective.
    """
    given = {name: value for name, value in attributes.items() if name not in ("axes", "size")}
    if op in _FUSED:
        return _FUSED[op](members, **given)
    results = _PLAIN[op]([cast("Tensor", inputs[0]) for inputs in members], **given)
    return [(result,) for result in results]
