"""embedding.native: one copy a row."""

from __future__ import annotations

from tskernels import _cpu
from tskernels.kernel import PERFORMANT, BoundCall, Kernel, KernelSpec
from tskernels.layout import grid, index_address
from tskernels.signatures import float32, indices


def bind_embedding(call: BoundCall) -> Kernel:
    """Rows of the shard; zeros for ids outside it."""
    ids, weight, y = call.tensor(0), grid(call.tensor(1)), grid(call.outputs[0])
    return _cpu.embedding(
        index_address(ids),
        weight.address,
        weight.strides[0],
        weight.extent[0],
        call.integer("vocab_start"),
        y.address,
        y.strides[0],
        rows=ids.shape[0],
        width=weight.extent[2],
        keep=call,
    )


SPECS = (
    KernelSpec(
        "embedding", "native", bind_embedding, PERFORMANT, {**indices("ids"), **float32("weight")}
    ),
)
