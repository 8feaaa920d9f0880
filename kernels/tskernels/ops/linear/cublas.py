"""linear.cublas: torch's matrix product on a GPU, for many rows.

It runs on torch's current stream, and lies in a program's graph as any kernel.
"""

from __future__ import annotations

from tskernels.capabilities import CUDA
from tskernels.kernel import PERFORMANT, KernelQuery, KernelSpec, Trait
from tskernels.ops.linear.cuda import MOST_ROWS
from tskernels.ops.linear.torch import bind_linear
from tskernels.signatures import device_floats


def _many(query: KernelQuery) -> bool:
    shape = query.shapes[0]
    return shape is not None and shape[0] > MOST_ROWS


SPECS = (
    KernelSpec(
        "linear",
        "cublas",
        bind_linear,
        PERFORMANT,
        device_floats("x", "weight", "bias"),
        CUDA,
        traits=(Trait(f"takes more than {MOST_ROWS} rows", _many),),
    ),
)
