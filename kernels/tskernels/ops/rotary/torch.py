"""rotary_table.torch and rotary.torch."""

from __future__ import annotations

import torch

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.ops.rotary.reference import pairs
from tskernels.signatures import TORCH_FLOATS, WIDE_FLOATS, indices


def bind_rotary_table(call: BoundCall) -> Kernel:
    """Cosines and sines of positions [T] x inv_freq [D/2], into [T, D]."""
    positions, inv_freq, y = call.tensor(0), call.tensor(1), call.outputs[0]
    scale = call.number("scale")
    half = inv_freq.shape[0]
    cos, sin = y[:, :half], y[:, half:]

    def run() -> None:
        angles = positions.to(inv_freq.dtype).unsqueeze(-1) * inv_freq
        torch.cos(angles, out=cos)
        torch.sin(angles, out=sin)
        if scale != 1.0:
            y.mul_(scale)

    return run


def bind_rotary(call: BoundCall) -> Kernel:
    """Rotate the pairs of x [T, h, Dx] by table [T, D]; the rest passes through."""
    x, table, y = call.tensor(0), call.tensor(1), call.outputs[0]
    width, interleaved = table.shape[1], bool(call.attributes["interleaved"])
    wide = torch.promote_types(x.dtype, table.dtype)
    first, second = pairs(x, width, interleaved=interleaved)
    left, right = pairs(y, width, interleaved=interleaved)
    rest, tail = x[..., width:], y[..., width:]
    cos, sin = table[:, None, : width // 2], table[:, None, width // 2 :]

    def run() -> None:
        a, b, c, s = first.to(wide), second.to(wide), cos.to(wide), sin.to(wide)
        left.copy_(torch.addcmul(a * c, b, s, value=-1))
        right.copy_(torch.addcmul(b * c, a, s))
        tail.copy_(rest)

    return run


SPECS = (
    KernelSpec(
        "rotary_table",
        "torch",
        bind_rotary_table,
        PORTABLE,
        {**indices("positions"), "inv_freq": WIDE_FLOATS},
    ),
    KernelSpec("rotary", "torch", bind_rotary, PORTABLE, {"x": TORCH_FLOATS, "table": WIDE_FLOATS}),
)
