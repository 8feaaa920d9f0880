"""Layers with parameters: thin modules over `tskernels.ops`, parameters named as in HF."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from tscompile.models.annotations import Annotation, Replicate, Shard
from tscompile.models.rope import RopeScaling, inverse_frequencies
from tskernels import ops


class Linear(nn.Module):
    """x [T, K] to [T, N] by `weight` [N, K], placed as `placement`; `bias` [N] is optional.

    A bias is cut as the weight's rows are; beside a weight cut by columns it is replicated (and
    masked by the compiler, so that it is added once). `quantized` and `wide` are of `quantize`.
    """

    quantized: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()

    def __init__(self, inputs: int, outputs: int, *, bias: bool, placement: Annotation) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        rows_cut = isinstance(placement, Shard) and placement.dim == 0
        self.placements: Mapping[str, Annotation] = {
            "weight": placement,
            "bias": placement if rows_cut else Replicate(placement.group),
        }

        self.weight_scale_inv: nn.Parameter | None = None
        self.block: tuple[int, int] = (0, 0)

    def quantize(self, block: tuple[int, int]) -> None:
        """Take a float8_e4m3fn weight, with `weight_scale_inv` for blocks of so many rows, columns.

        The scales are named as in checkpoints, where they are what weights are multiplied by.
        """
        self.block = block
        counts = [-(-n // b) for n, b in zip(self.weight.shape, block, strict=True)]
        self.weight_scale_inv = nn.Parameter(torch.empty(counts))
        self.placements = {**self.placements, "weight_scale_inv": self.placements["weight"]}
        self.quantized, self.wide = frozenset({"weight"}), frozenset({"weight_scale_inv"})

    def forward(self, x: Tensor) -> Tensor:
        """The product, plus bias."""
        if self.weight_scale_inv is None:
            return ops.linear(x, self.weight, self.bias)
        scale, block = self.weight_scale_inv, self.block
        return ops.scaled_linear(x, self.weight, scale, self.bias, block=block)


class Embedding(nn.Module):
    """Token ids [T] int32 to rows [T, H] of `weight` [V, H]."""

    def __init__(self, rows: int, width: int, *, placement: Annotation) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        self.placements: Mapping[str, Annotation] = {"weight": placement}

    def forward(self, ids: Tensor) -> Tensor:
        """The looked-up rows."""
        return ops.embedding(ids, self.weight)


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dim, times `weight` [H]."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x."""
        return ops.rms_norm(x, self.weight, eps=self.eps)


class RotaryTable(nn.Module):
    """Cosines and sines [T, D] of positions [T] int32; its frequencies are a constant.

    The buffer stays real where the module is built on meta, and float32 (float64 in a float64
    model) where the module is cast: angles at long positions need it.
    """

    inv_freq: Tensor

    def __init__(self, rope: RopeScaling, dim: int) -> None:
        super().__init__()
        self.frequencies = inverse_frequencies(rope, dim)
        self.scale = rope.table_scale
        self.register_buffer("inv_freq", self._tensor(torch.float32, "cpu"), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """The table."""
        return ops.rotary_table(positions, self.inv_freq, scale=self.scale)

    def _tensor(self, dtype: torch.dtype, device: torch.device | str) -> Tensor:
        return torch.tensor(self.frequencies, dtype=dtype, device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryTable:
        moved = fn(self.inv_freq)
        wide = moved.dtype == torch.float64
        self.inv_freq = self._tensor(torch.float64 if wide else torch.float32, moved.device)
        return self
