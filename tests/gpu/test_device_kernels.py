"""Every Triton solution on the GPU, compiled as an artifact holds it, against its reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from decode_cases import Sequences, asked
from decode_cases import layout as decode_layout
from kernel_cases import Case, seed
from kernel_checks import TOLERANCE, assert_close, expected, outputs_of
from torch import Tensor
from triton_runs import Run, layout, runs

from tskernels.compilers import compile_function
from tskernels.device import CudaDevice, cuda_arch
from tskernels.launch import DEPENDENT_LAUNCH, Address, CudaFunction, LaunchPlan
from tskernels.ops.attention.cuda import plan_decode

pytestmark = pytest.mark.gpu

ARCH = "sm_90"


def on_gpu(x: Tensor) -> Tensor:
    """The same view of a copy of the whole storage: neighbours are what they were."""
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())  # pyright: ignore[reportUnknownMemberType]
    return whole.to("cuda").as_strided(x.shape, x.stride(), x.storage_offset())


def launch(plan: LaunchPlan, case: Case, outputs: tuple[Tensor, ...]) -> None:
    """Run the launches, twice: the second run finds what the first one left."""
    scratch = torch.full((plan.scratch_bytes // 4 + 1,), float("nan"), device="cuda")
    counters = torch.zeros(plan.counter_bytes // 4 + 1, dtype=torch.int32, device="cuda")
    areas = {"scratch": scratch, "counters": counters}
    places = {"input": case.inputs, "output": outputs}

    def pointer(address: Address) -> int:
        if address.space in areas:
            return areas[address.space].data_ptr() + address.index
        return operand(address).data_ptr()

    def operand(address: Address) -> Tensor:
        found = places[address.space][address.index]
        assert found is not None
        return found

    stream = torch.cuda.Stream()
    device = CudaDevice(stream)
    torch.cuda.synchronize()
    for planned in plan.launches * 2:
        kernel = device.load(compile_function(planned.function, ARCH))
        pointers = [pointer(address) for address in planned.addresses]
        maps = [device.tensor_map(operand(m.address), m.box, m.columns) for m in planned.maps]
        kernel.bind(planned.grid, pointers, early=ARCH in DEPENDENT_LAUNCH, maps=maps)()
    torch.cuda.synchronize()
    assert not counters.any()


@pytest.mark.parametrize("run", list(runs(ARCH)), ids=lambda run: run.name)
def test_agrees_with_the_reference_on_the_gpu(run: Run) -> None:
    assert cuda_arch(0) == ARCH
    seed(7)
    case = run.make(run.dtype.torch)
    wanted = expected(run.spec.op, case)
    outputs = outputs_of(run.spec.op, case)
    plan = run.spec.launches
    assert plan is not None
    moved = replace(case, inputs=tuple(None if x is None else on_gpu(x) for x in case.inputs))
    mutated = {id(x): y for x, y in zip(case.inputs, moved.inputs, strict=True)}
    there = tuple(mutated.get(id(x)) if id(x) in mutated else on_gpu(x) for x in outputs)
    launch(plan(layout(run.spec, moved, there, ARCH)), moved, there)  # pyright: ignore[reportArgumentType]
    for got, want in zip(there, wanted, strict=True):
        assert got is not None
        assert_close(got[: case.rows].cpu(), want[: case.rows], TOLERANCE[run.dtype])


@pytest.mark.parametrize(
    "of",
    [
        Sequences((*range(1, 64 * 48, 48)[:-1], 8192), 8, 4, 128, 64),
        Sequences(tuple(range(2000, 2016)), 8, 4, 128, 64, idle=(3, 15)),
        Sequences((1, 700, 65, 2048, 64, 129, 33, 1500), 8, 8, 64, 16, window=600, sinks=True),
    ],
    ids=lambda of: f"{len(of.lengths)}x{of.kv_heads}x{of.group}x{of.width}",
)
def test_decode_of_many_sequences_of_any_length(of: Sequences) -> None:
    case = asked(of)
    plan = plan_decode(decode_layout(case.inputs, of))
    assert isinstance(plan.launches[0].function, CudaFunction)
    inputs = tuple(x.cuda() for x in case.inputs)
    y = torch.full_like(inputs[0], float("nan"))
    launch(plan, Case(inputs, {}), (y,))
    torch.testing.assert_close(y.cpu().double(), case.wanted, rtol=2**-7, atol=0.01)
