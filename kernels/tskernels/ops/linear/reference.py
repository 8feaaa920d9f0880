"""References of linear layers."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias: x [T, K], weight [N, K], bias [N] or None, to [T, N]."""
    return functional.linear(x, weight, bias)


def scaled_linear(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    block: tuple[int, ...],
) -> Tensor:
    """Return x @ (weight * scale).T + bias, an entry of `scale` for each block of the weight.

    x [T, K]; weight [N, K] in float8_e4m3fn (or in x's dtype); scale [ceil(N / n), ceil(K / k)] in
    float32 (float64 beside a float64 x) for blocks of n, k = `block` rows and columns, those at the
    end cut short; bias [N] in x's dtype or None; to [T, N] in x's dtype. Only the weight is
    quantized: x is used as it is, and products are summed in scale's dtype. The layout is that of
    DeepSeek-V3's checkpoints, where scale is `weight_scale_inv` (DeepSeek-V3 Technical Report,
    section 3.3.2).
    """
    wide = dequantized(weight, scale, block)
    added = None if bias is None else bias.to(wide.dtype)
    return functional.linear(x.to(wide.dtype), wide, added).to(x.dtype)


def dequantized(weight: Tensor, scale: Tensor, block: tuple[int, ...]) -> Tensor:
    """Weight * scale [N, K] in scale's dtype, by blocks of `block` rows and columns."""
    rows, columns = weight.shape
    down = scale.repeat_interleave(block[0], 0)[:rows]
    return weight.to(scale.dtype) * down.repeat_interleave(block[1], 1)[:, :columns]
