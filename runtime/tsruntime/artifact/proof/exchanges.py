"""The collectives that the checker understands: what each member of a group ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from tsruntime.artifact.proof import collectives
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.semantics import fused
from tsruntime.artifact.proof.semantics.base import Attributes, Inputs, present
from tsruntime.artifact.proof.tile import Local

Exchange: TypeAlias = Callable[[Lookup, Sequence[Inputs], Attributes], Sequence[tuple[Local, ...]]]
"""Each member's outputs, given each member's inputs by coordinate."""


def _plain(
    exchange: Callable[[Sequence[Local], Attributes], tuple[Local, ...]],
) -> Exchange:
    """Of one tensor a member, in and out."""

    def run(
        traced: Lookup, members: Sequence[Inputs], attributes: Attributes
    ) -> Sequence[tuple[Local, ...]]:
        results = exchange([present(inputs[0]) for inputs in members], attributes)
        return [(result,) for result in results]

    return run


EXCHANGES: Mapping[str, Exchange] = MappingProxyType(
    {
        "all_reduce": _plain(collectives.all_reduce),
        "all_gather": _plain(collectives.all_gather),
        "reduce_scatter": _plain(collectives.reduce_scatter),
        "all_to_all": _plain(collectives.all_to_all),
        "all_reduce_add_rms_norm": fused.all_reduce_add_rms_norm,
        "reduce_scatter_add_rms_norm": fused.reduce_scatter_add_rms_norm,
        "reduce_scatter_add_rms_norm_all_gather": fused.reduce_scatter_add_rms_norm_all_gather,
    }
)
"""An op that is neither here nor in `semantics.table` proves nothing."""
