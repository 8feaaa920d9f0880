"""embedding.torch: torch's row gather."""

from __future__ import annotations

import torch

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.signatures import floats, indices


def bind_embedding(call: BoundCall) -> Kernel:
    """Rows of the shard; zeros for ids outside it."""
    ids, weight, y = call.tensor(0), call.tensor(1), call.outputs[0]
    start, rows = call.integer("vocab_start"), weight.shape[0]

    def run() -> None:
        local = ids - start
        inside = local.clamp(0, rows - 1)
        torch.index_select(weight, 0, inside, out=y)
        y.masked_fill_((local != inside).unsqueeze(-1), 0.0)

    return run


SPECS = (
    KernelSpec(
        "embedding", "torch", bind_embedding, PORTABLE, {**indices("ids"), **floats("weight")}
    ),
)
