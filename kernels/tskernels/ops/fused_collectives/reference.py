"""References of the fused collectives, as one rank calls them: with one rank, nothing is exchanged.

What more ranks would get is in `tskernels.ops.fused_collectives.group`. All work on rows: x [T, H]
is what each of the `size` ranks along `axes` (innermost first) holds of a sum; rank i keeps the
i-th of equal parts of the rows wherever rows are scattered. The residual is optional.
"""

from __future__ import annotations

from torch import Tensor

from tskernels.ops.fused.reference import add_rms_norm
from tskernels.ops.norm.reference import rms_norm


def all_reduce_add_rms_norm(
    x: Tensor,
    weight: Tensor,
    residual: Tensor | None = None,
    *,
    axes: tuple[str, ...],
    size: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """The reduced x plus residual [T, H], and its norm by weight [H]: both [T, H]."""
    return _alone("all_reduce_add_rms_norm", x, weight, residual, axes, size, eps)


def reduce_scatter_add_rms_norm(
    x: Tensor,
    weight: Tensor,
    residual: Tensor | None = None,
    *,
    axes: tuple[str, ...],
    size: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Own rows of the reduced x plus residual [T / size, H], and their norm."""
    return _alone("reduce_scatter_add_rms_norm", x, weight, residual, axes, size, eps)


def reduce_scatter_add_rms_norm_all_gather(
    x: Tensor,
    weight: Tensor,
    residual: Tensor | None = None,
    *,
    axes: tuple[str, ...],
    size: int,
    eps: float,
    both: bool = False,
) -> tuple[Tensor, Tensor]:
    """Own rows of the reduced x plus residual [T / size, H], and all rows of its norm.

    With `both` the sum is gathered too, in one exchange with the norm.
    """
    return _alone("reduce_scatter_add_rms_norm_all_gather", x, weight, residual, axes, size, eps)


def _alone(
    op: str,
    x: Tensor,
    weight: Tensor,
    residual: Tensor | None,
    axes: tuple[str, ...],
    size: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    if size != 1:
        raise RuntimeError(f"{op} over {axes} needs {size} ranks; a single process has one")
    if residual is None:
        return x.clone(), rms_norm(x, weight, eps=eps)
    return add_rms_norm(x, residual, weight, eps=eps)
