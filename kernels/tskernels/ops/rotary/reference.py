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


def rotary(x: Tensor, table: Tensor) -> Tensor:
    """Rotate the pairs (i, i + D/2) of every head: x [T, h, Dx], table [T, D], to [T, h, Dx].

    The half rotation of transformers' apply_rotary_pos_emb. Where the table is narrower than the
    head (D < Dx), the rest passes through. Computed in the wider of the two dtypes.
    """
    half = table.shape[-1] // 2
    wide = x.to(torch.promote_types(x.dtype, table.dtype))
    first, second, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
    angles = table.to(wide.dtype).unsqueeze(1)
    cos, sin = angles[..., :half], angles[..., half:]
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
    return turned.to(x.dtype)
