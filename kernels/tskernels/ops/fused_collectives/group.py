"""What every rank of a group gets from a fused collective, from all their inputs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from tskernels.ops.collectives import group
from tskernels.ops.fused.reference import add_rms_norm
from tskernels.ops.norm.reference import rms_norm

Members: TypeAlias = Sequence[Sequence[Tensor | None]]
"""Each member's x, weight and residual (or None), by coordinate."""

Results: TypeAlias = list[tuple[Tensor, Tensor]]
"""Each member's sum and normed sum."""


def all_reduce_add_rms_norm(members: Members, eps: float) -> Results:
    """Reduce, add, norm."""
    return _normed(members, group.all_reduce(_summands(members)), eps)


def reduce_scatter_add_rms_norm(members: Members, eps: float) -> Results:
    """Reduce and scatter rows, add, norm."""
    return _normed(members, group.reduce_scatter(_summands(members), 0), eps)


def reduce_scatter_add_rms_norm_all_gather(
    members: Members, eps: float, *, both: bool = False
) -> Results:
    """The same, and gather what was normed; with `both` the sum too."""
    parts = reduce_scatter_add_rms_norm(members, eps)
    totals, normed = [total for total, _ in parts], [x for _, x in parts]
    if both:
        totals = [torch.cat(totals)] * len(members)
    return [(total, torch.cat(normed)) for total in totals]


def _summands(members: Members) -> list[Tensor]:
    return [_present(member[0]) for member in members]


def _normed(members: Members, sums: Sequence[Tensor], eps: float) -> Results:
    found: Results = []
    for (_, weight, residual), total in zip(members, sums, strict=True):
        gain = _present(weight)
        if residual is None:
            found.append((total, rms_norm(total, gain, eps=eps)))
        else:
            found.append(add_rms_norm(total, residual, gain, eps=eps))
    return found


def _present(x: Tensor | None) -> Tensor:
    assert x is not None
    return x
