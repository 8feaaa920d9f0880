"""rotary_table.native and rotary.native."""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import address, extent, grid, index_address, strides
from tskernels.signatures import float32, indices


def bind_rotary_table(call: BoundCall) -> Kernel:
    """Cosines and sines of positions [T] x inv_freq [D/2], into [T, D]."""
    positions, inv_freq, y = call.tensor(0), call.tensor(1), grid(call.outputs[0])
    return _cpu.rotary_table(
        index_address(positions),
        address(grid(inv_freq)),
        rows=positions.shape[0],
        half=inv_freq.shape[0],
        scale=call.number("scale"),
        y=address(y),
        y_stride=strides(y)[0],
        keep=(positions, inv_freq, y),
    )


def bind_rotary(call: BoundCall) -> Kernel:
    """Rotate the pairs (i, i + D/2) of x [T, h, Dx] by table [T, D]; the rest passes through."""
    x, table, y = grid(call.tensor(0)), grid(call.tensor(1)), grid(call.outputs[0])
    return _cpu.rotary(
        address(x),
        strides(x),
        address(table),
        strides(table)[0],
        table.shape[2] // 2,
        address(y),
        strides(y),
        shape=extent(x),
        keep=(x, table, y),
    )


SPECS = (
    KernelSpec(
        "rotary_table",
        "native",
        bind_rotary_table,
        PERFORMANT,
        {**indices("positions"), **float32("inv_freq")},
    ),
    KernelSpec("rotary", "native", bind_rotary, PERFORMANT, float32("x", "table")),
)
