"""References of the rotary position embedding (Su et al., RoFormer, 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_table(positions: Tensor, inv_freq: Tensor, *, scale: float = 1.0) -> Tensor:
    """Cosines, then sines, of position x frequency: positions [T], inv_freq [D/2], to [T, D].

    Times `scale` (YaRN's attention factor). Computed in inv_freq's dtype, float32 or float64;
    angles are in radians.
    """
    angles = positions.to(inv_freq.dtype).unsqueeze(-1) * inv_freq
    return torch.cat((angles.cos(), angles.sin()), dim=-1) * scale


def rotary(x: Tensor, table: Tensor, *, interleaved: bool = False) -> Tensor:
    """Rotate pairs of every head: x [T, h, Dx], table [T, D], to [T, h, Dx].

    Pair i is (i, i + D/2), the half rotation of transformers' apply_rotary_pos_emb; or, where
    `interleaved`, the neighbours (2i, 2i + 1), as RoFormer's paper and DeepSeek have it. Where the
    table is narrower than the head (D < Dx), the rest passes through. Computed in the wider of the
    two dtypes.
    """
    width = table.shape[-1]
    wide = x.to(torch.promote_types(x.dtype, table.dtype))
    angles = table.to(wide.dtype).unsqueeze(1)
    cos, sin = angles[..., : width // 2], angles[..., width // 2 :]
    turned = wide.clone()
    ours, theirs = pairs(wide, width, interleaved=interleaved)
    first, second = pairs(turned, width, interleaved=interleaved)
    first.copy_(ours * cos - theirs * sin)
    second.copy_(theirs * cos + ours * sin)
    return turned.to(x.dtype)


def pairs(x: Tensor, width: int, *, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Views [..., width / 2] of the first and second numbers of each pair in x [..., Dx]."""
    if interleaved:
        return x[..., 0:width:2], x[..., 1:width:2]
    return x[..., : width // 2], x[..., width // 2 : width]
