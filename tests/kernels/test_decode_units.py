"""Hopper's decode attention: its source run by this machine's threads, and its plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from decode_cases import Sequences, asked, layout
from hopper_source import built, place
from torch import Tensor

from tskernels.capabilities import SHARED_BYTES
from tskernels.compilers import compile_function
from tskernels.cubin import CubinError
from tskernels.launch import CudaFunction, LaunchPlan
from tskernels.ops.attention.configs import Decode, Heads, Units, shares, takes_units
from tskernels.ops.attention.cuda import by_units, plan_shares
from tskernels.schema import DType


def run_here(
    plan: LaunchPlan, folder: Path, inputs: Sequence[Tensor], blocks: Sequence[int]
) -> Tensor:
    """Run the source on this machine's threads, one block after another in the given order."""
    (launch,) = plan.launches
    assert isinstance(launch.function, CudaFunction)
    query, cache, *rest = inputs
    y = torch.full_like(query, float("nan"))
    partial = torch.full((plan.scratch_bytes // 4,), float("nan"))
    counted = torch.zeros(plan.counter_bytes // 4, dtype=torch.int32)
    order = torch.tensor(blocks, dtype=torch.int32)
    rows = cache.numel() // cache.shape[-1]
    given = map(place, (query, *rest, y, partial, counted, order))
    run = built(launch.function, "decode_host.cpp", folder)
    assert run(place(cache), rows, *given), "the newest key was read early"
    assert not counted.any(), "a launch left its counters"
    return y


@pytest.mark.parametrize(
    ("of", "blocks"),
    [
        (Sequences((130, 1, 64, 65), 2, 4, 128, 64), 5),
        (Sequences((70,), 1, 2, 64, 16, sinks=True), 3),
        (Sequences((200, 3), 2, 1, 128, 256, window=100, sinks=True, idle=(1,)), 4),
        (Sequences((40, 9), 1, 8, 64, 8), 16),
        (Sequences((70, 200, 5, 131), 2, 2, 64, 8, idle=(2,), several=(1,)), 4),
        (Sequences((150, 20), 1, 2, 64, 16, window=75), 3),
    ],
)
def test_the_source_agrees_with_attention_in_any_order_of_blocks(
    tmp_path: Path, of: Sequences, blocks: int
) -> None:
    case = asked(of)
    plan = plan_shares(layout(case.inputs, of), Units(blocks, 2))
    first = run_here(plan, tmp_path, case.inputs, range(blocks))
    torch.testing.assert_close(first.double(), case.wanted, rtol=2**-7, atol=0.01, equal_nan=True)
    again = run_here(plan, tmp_path, case.inputs, range(blocks)[::-1])
    torch.testing.assert_close(first, again, rtol=0, atol=0, equal_nan=True)


def test_a_plan_has_the_memory_that_the_kernel_needs() -> None:
    of = Sequences((64, 64), 8, 4, 128, 16)
    (launch,) = (plan := plan_shares(layout(asked(of).inputs, of), Units(264, 3))).launches
    assert isinstance(launch.function, CudaFunction)
    assert launch.grid == (264, 1, 1)
    assert [(m.box, m.columns) for m in launch.maps] == [((32, 64), 64)]
    assert launch.function.shared_bytes == 5120 + 3 * 32_768 + 4 * 4 * 130 * 4
    assert plan.scratch_bytes == 264 * 2 * 4 * 130 * 4
    assert plan.counter_bytes == 2 * 8 * 4
    assert compile_function(launch.function, "sm_90").symbol == "decode"


def test_a_ring_larger_than_a_block_may_have_is_refused_when_compiled() -> None:
    of = Sequences((64, 64), 8, 4, 128, 16)
    (launch,) = plan_shares(layout(asked(of).inputs, of), Units(132, 7)).launches
    with pytest.raises(CubinError, match=r"takes 242816 bytes of shared memory.* 232448 on sm_90"):
        compile_function(launch.function, "sm_90")


def test_calls_that_the_kernel_cannot_take_are_left_to_another() -> None:
    heads = Heads(64, 8, 4, 128, DType.BFLOAT16)
    assert takes_units(heads, 64, 64)
    assert not takes_units(replace(heads, dtype=DType.FLOAT32), 64, 64)
    assert not takes_units(replace(heads, width=96), 64, 64)
    assert not takes_units(replace(heads, group=16), 64, 64)
    assert not takes_units(heads, 48, 64)
    assert not takes_units(heads, 4, 64)
    assert not takes_units(heads, 64, 481)
    of = Sequences((64,), 8, 4, 128, 64)
    call = layout(asked(of).inputs, of)
    assert by_units(call)
    cache = replace(call.input(1), alignment=8)
    assert not by_units(replace(call, inputs=(call.inputs[0], cache, *call.inputs[2:])))
    query = call.input(0)
    for odd in (replace(query, alignment=2), replace(query, strides=(513, 128, 1))):
        assert not by_units(replace(call, inputs=(odd, *call.inputs[1:])))
    apart = replace(call.input(1), strides=(1 << 20, *call.input(1).strides[1:]))
    assert not by_units(replace(call, inputs=(call.inputs[0], apart, *call.inputs[2:])))


def test_another_chip_has_another_kernel() -> None:
    of = Sequences((64,), 8, 4, 128, 64)
    call = layout(asked(of).inputs, of)
    for arch in sorted(set(SHARED_BYTES) - {"sm_90"}):
        assert not by_units(replace(call, arch=arch))


@pytest.mark.parametrize(("group", "width"), [(4, 128), (8, 64), (8, 128), (1, 128)])
def test_many_sequences_have_equal_shares_of_two_blocks_a_multiprocessor(
    group: int, width: int
) -> None:
    heads = Heads(8, 8, group, width, DType.BFLOAT16)
    config = shares(heads, "sm_90", by_units=True)
    assert isinstance(config, Units)
    assert config.blocks <= 2 * 132
    assert 2 * (config.shared_bytes(heads) + 1024) <= 228 * 1024
    assert config.stages * 2 * 64 * width * 2 == 65_536  # bytes on their way in a block
    assert isinstance(shares(replace(heads, rows=7), "sm_90", by_units=True), Decode)
    assert isinstance(shares(heads, "sm_90", by_units=False), Decode)
