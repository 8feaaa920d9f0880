"""select_rows.triton: the gather of the embedding."""

from __future__ import annotations

from tskernels.capabilities import CUDA
from tskernels.kernel import PORTABLE, KernelSpec, compiled
from tskernels.launch import CallLayout, LaunchPlan
from tskernels.ops.embedding.cuda import gather
from tskernels.signatures import device_floats, indices


def plan_select_rows(call: CallLayout) -> LaunchPlan:
    """Gather rows of x [T, H]."""
    return LaunchPlan((gather(call, rows=1, x=0, first=0),))


SPECS = (
    KernelSpec(
        "select_rows",
        "triton",
        compiled,
        PORTABLE,
        {**device_floats("x"), **indices("rows")},
        CUDA,
        launches=plan_select_rows,
    ),
)
