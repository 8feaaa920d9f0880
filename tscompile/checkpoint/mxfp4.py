"""MXFP4: blocks of 32 four-bit floats that share a power of two, as GPT-OSS stores its experts.

OCP Microscaling Formats (MX) Specification 1.0, section 5.3.3: E2M1 elements, E8M0 scales.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

BLOCK: Final = 32
"""Elements that share a scale; two to a byte, the first in its low half."""

_POSITIVE: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES: Final = (*_POSITIVE, *(-value for value in _POSITIVE))
_BIAS: Final = 127


def dequantize(blocks: Tensor, scales: Tensor) -> Tensor:
    """Values [..., 32 * n] in bfloat16, which holds them all.

    blocks [..., n, 16] and scales [..., n] are uint8. A scale of 255 is not a number.
    """
    halves = torch.stack((blocks & 0x0F, blocks >> 4), dim=-1).flatten(-2)
    values = torch.tensor(_VALUES)[halves.long()]
    powers = torch.exp2(scales.to(torch.float32) - _BIAS)
    powers = powers.masked_fill(scales == 0xFF, torch.nan)
    return (values * powers.unsqueeze(-1)).flatten(-2).to(torch.bfloat16)
