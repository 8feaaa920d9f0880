"""scaled_linear.torch and its gated form: dequantized some blocks of rows at a time, then MKL."""

from __future__ import annotations

import torch

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec, Signature
from tskernels.ops.elementwise.torch import bind_silu_mul
from tskernels.ops.linear.reference import dequantized
from tskernels.schema import DType
from tskernels.signatures import TORCH_FLOATS, WIDE_FLOATS

_ELEMENTS = 1 << 20
"""Entries of the weight that are dequantized at a time: a few megabytes, which caches hold."""


def block_of(call: BoundCall) -> tuple[int, int]:
    """Rows and columns of the weight that share a scale."""
    block = call.attributes["block"]
    assert isinstance(block, tuple)
    rows, columns = block
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    return rows, columns


def bind_scaled_linear(call: BoundCall) -> Kernel:
    """X [T, K] times the transposed weight [N, K] * scale, plus the bias [N] if there is one."""
    x, weight, scale = (call.tensor(i) for i in range(3))
    bias, y, block = call.inputs[3], call.outputs[0], block_of(call)
    height = max(1, _ELEMENTS // (block[0] * weight.shape[1]))  # blocks of rows

    def run() -> None:
        wide = x.to(scale.dtype)
        for first in range(0, scale.shape[0], height):
            rows = slice(first * block[0], (first + height) * block[0])
            part = dequantized(weight[rows], scale[first : first + height], block)
            product = torch.mm(wide, part.t())
            y[:, rows] = product if bias is None else product + bias[rows].to(scale.dtype)

    return run


def bind_scaled_linear_silu_mul(call: BoundCall) -> Kernel:
    """Gate and up [T, 2F] by one product into a buffer of its own, then silu(gate) * up."""
    x, weight, y = call.tensor(0), call.tensor(1), call.outputs[0]
    both = x.new_empty(x.shape[0], weight.shape[0])
    gate, up = both.chunk(2, dim=1)
    product = bind_scaled_linear(BoundCall(call.inputs, (both,), call.attributes))
    activation = bind_silu_mul(BoundCall((gate, up), (y,), {}))

    def run() -> None:
        product()
        activation()

    return run


_SIGNATURE: Signature = {
    "x": TORCH_FLOATS,
    "weight": (DType.FLOAT8_E4M3, DType.FLOAT64),
    "scale": WIDE_FLOATS,
    "bias": TORCH_FLOATS,
}

SPECS = (
    KernelSpec("scaled_linear", "torch", bind_scaled_linear, PORTABLE, _SIGNATURE),
    KernelSpec(
        "scaled_linear_silu_mul", "torch", bind_scaled_linear_silu_mul, PORTABLE, _SIGNATURE
    ),
)
