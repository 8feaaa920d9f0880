"""Reference of the linear layer."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias: x [T, K], weight [N, K], bias [N] or None, to [T, N]."""
    return functional.linear(x, weight, bias)
