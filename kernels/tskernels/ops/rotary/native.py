"""rotary_table.native and rotary.native."""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec, Trait
from tskernels.layout import grid, index_address
from tskernels.signatures import float32, indices


def bind_rotary_table(call: BoundCall) -> Kernel:
    """Cosines and sines of positions [T] x inv_freq [D/2], into [T, D]."""
    positions, inv_freq = call.tensor(0), grid(call.tensor(1))
    y = grid(call.outputs[0])
    return _cpu.rotary_table(
        index_address(positions),
        inv_freq.address,
        rows=positions.shape[0],
        half=inv_freq.extent[2],
        scale=call.number("scale"),
        y=y.address,
        y_stride=y.strides[0],
        keep=call,
    )


def bind_rotary(call: BoundCall) -> Kernel:
    """Rotate the pairs (i, i + D/2) of x [T, h, Dx] by table [T, D]; the rest passes through."""
    x, table, y = grid(call.tensor(0)), grid(call.tensor(1)), grid(call.outputs[0])
    return _cpu.rotary(
        x.address,
        x.strides,
        table.address,
        table.strides[0],
        table.extent[2] // 2,
        y.address,
        y.strides,
        shape=x.extent,
        keep=call,
    )


HALVES = Trait("rotates halves, not neighbours", lambda query: not query.attributes["interleaved"])

SPECS = (
    KernelSpec(
        "rotary_table",
        "native",
        bind_rotary_table,
        PERFORMANT,
        {**indices("positions"), **float32("inv_freq")},
    ),
    KernelSpec(
        "rotary", "native", bind_rotary, PERFORMANT, float32("x", "table"), traits=(HALVES,)
    ),
)
