"""Fused collectives over a communicator of threads, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from thread_group import SIZE, run_group
from torch import Tensor

from tskernels.ops.fused_collectives import group

ROWS, WIDTH, EPS = 2 * SIZE, 37, 1e-3

PINS = [
    (f"{op}.{solution}", dtype, both)
    for op, both in (
        ("all_reduce_add_rms_norm", False),
        ("reduce_scatter_add_rms_norm", False),
        ("reduce_scatter_add_rms_norm_all_gather", False),
        ("reduce_scatter_add_rms_norm_all_gather", True),
    )
    for solution, dtype in (
        ("communicator", torch.float64),
        ("communicator", torch.float32),
        ("native", torch.float32),
    )
]


def members(dtype: torch.dtype, rows: int, *, residual: bool) -> list[tuple[Tensor | None, ...]]:
    """Each rank's summands, gain and residual of `rows` rows: column slices of wider buffers."""
    torch.manual_seed(3)  # pyright: ignore[reportUnknownMemberType]

    def wide(count: int) -> Tensor:
        return torch.randn(count, WIDTH + 4, dtype=torch.float64).to(dtype)[:, 2:-2]

    gain = wide(1)[0].contiguous()
    shared = wide(ROWS)
    return [
        (
            wide(ROWS),
            gain,
            (shared if rows == ROWS else shared[i * rows : (i + 1) * rows]) if residual else None,
        )
        for i in range(SIZE)
    ]


def whole(held: list[tuple[Tensor | None, ...]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All rows of the sum and of its norm."""
    total = np.zeros((ROWS, WIDTH))
    residuals: list[NDArray[np.float64]] = []
    for x, _, residual in held:
        assert x is not None
        total += x.double().numpy()
        if residual is not None:
            residuals.append(residual.double().numpy())
    if residuals:
        total += residuals[0] if len(residuals[0]) == ROWS else np.concatenate(residuals)
    gain = held[0][1]
    assert gain is not None
    scale = np.sqrt((total**2).mean(1, keepdims=True) + EPS)
    return total, total / scale * gain.double().numpy()


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(("pin", "dtype", "both"), PINS)
def test_fused_collective(pin: str, dtype: torch.dtype, *, both: bool, residual: bool) -> None:
    op = pin.split(".")[0]
    gathers = op.endswith("all_gather")
    rows = ROWS if op.startswith("all_reduce") else ROWS // SIZE
    held = members(dtype, rows, residual=residual)
    given = {"eps": EPS, **({"both": both} if gathers else {})}
    total, normed = whole(held)
    limit = 1e-12 if dtype == torch.float64 else 1e-5
    results = run_group(pin, held, given)
    for rank, (summed, scaled) in enumerate(results):
        own = slice(rank * rows, (rank + 1) * rows) if rows < ROWS else slice(None)
        wanted = (total if both else total[own], normed if gathers else normed[own])
        for got, want in zip((summed, scaled), wanted, strict=True):
            np.testing.assert_allclose(got.double().numpy(), want, rtol=limit, atol=limit)
    references = getattr(group, op)(held, **given)
    for mine, reference in zip(results, references, strict=True):
        for got, want in zip(mine, reference, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
