"""Reference of RMS normalisation."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """Root-mean-square norm over the last dim: x [..., H] (2 or 3 dims), weight [H], to x's shape.

    Statistics are in float32 (float64 for a float64 input), and the normed value is rounded to
    x's dtype before it is scaled, as in transformers' LlamaRMSNorm.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)
