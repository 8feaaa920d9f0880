"""Hopper's decode attention: its source run by this machine's threads, and its plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from hopper_source import built, place
from torch import Tensor

from tskernels.compilers import compile_function
from tskernels.cubin import CubinError
from tskernels.launch import ALIGNED, CallLayout, CudaFunction, LaunchPlan, Operand
from tskernels.ops.attention.configs import Heads, Units, takes_units, unit_candidates
from tskernels.ops.attention.cuda import by_units, plan_shares
from tskernels.schema import DType, TensorType


@dataclass(frozen=True)
class Sequences:
    """Lengths of sequences, those that ask nothing, and what is asked of them."""

    lengths: tuple[int, ...]
    kv_heads: int
    group: int
    width: int
    page: int
    window: int = 0
    sinks: bool = False
    idle: tuple[int, ...] = ()


@dataclass(frozen=True)
class Asked:
    """The inputs of an attention, and what it should give: numbers beyond a sequence are NaN."""

    inputs: tuple[Tensor, ...]
    wanted: Tensor


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape).bfloat16()


def asked(of: Sequences) -> Asked:
    """Random keys and values, in pages in random order."""
    torch.manual_seed(len(of.lengths))  # pyright: ignore[reportUnknownMemberType]
    counts = [-(-length // of.page) for length in of.lengths]
    tables = torch.zeros(len(counts), max(counts) + 1, dtype=torch.int32)
    order = torch.randperm(sum(counts) + 1).int()
    cache = torch.full((len(order), 2, of.kv_heads, of.page, of.width), float("nan")).bfloat16()
    rows = [0 if s in of.idle else 1 for s in range(len(counts))]
    query = normal(sum(rows), of.kv_heads * of.group, of.width)
    sinks, at = normal(of.kv_heads * of.group), 0
    wanted: list[Tensor] = []
    for s, (length, count) in enumerate(zip(of.lengths, counts, strict=True)):
        tables[s, :count] = order[at : at + count]
        at += count
        held = normal(2, of.kv_heads, length, of.width)
        for page in range(count):
            part = held[:, :, page * of.page : (page + 1) * of.page]
            cache[tables[s, page], :, :, : part.shape[2]] = part
        if of.window:
            forget(cache, tables[s], length - of.window)
        if rows[s]:
            wanted.append(attention(query[sum(rows[:s])], held, sinks, of))
    starts = torch.tensor(list(accumulate(rows, initial=0)), dtype=torch.int32)
    lengths = torch.tensor(of.lengths, dtype=torch.int32)
    return Asked((query, cache, tables, lengths, starts, sinks), torch.stack(wanted))


def forget(cache: Tensor, table: Tensor, before: int) -> None:
    """What is older than a window may be anything, and its pages may be another's."""
    size = cache.shape[3]
    for key in range(before):
        cache[table[key // size], :, :, key % size] = float("nan")
    table[: max(before, 0) // size] = 10**6


def attention(query: Tensor, held: Tensor, sinks: Tensor, of: Sequences) -> Tensor:
    """In float64: query [heads, D], held [2, kv_heads, length, D]."""
    if of.window:
        held = held[:, :, -of.window :]
    keys, values = held.double().repeat_interleave(of.group, 1)
    scores = torch.einsum("hd,htd->ht", query.double(), keys) * of.width**-0.5
    if of.sinks:
        scores = torch.cat([scores, sinks.double()[:, None]], 1)
    weights = scores.softmax(1)[:, : keys.shape[1]]
    return torch.einsum("ht,htd->hd", weights, values)


def layout(inputs: Sequence[Tensor], of: Sequences) -> CallLayout:
    def operand(x: Tensor) -> Operand:
        kind = DType.INT32 if x.dtype is torch.int32 else DType.BFLOAT16
        return Operand(TensorType(kind, tuple(x.shape)), x.stride(), ALIGNED)

    operands = [operand(x) for x in inputs]
    given = (*operands[:5], operands[5] if of.sinks else None)
    attributes = {"scale": of.width**-0.5, "window": of.window}
    return CallLayout(given, (operands[0],), attributes, "sm_90")


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
        (Sequences((150, 20), 1, 2, 64, 16, window=75), 3),
    ],
)
def test_the_source_agrees_with_attention_in_any_order_of_blocks(
    tmp_path: Path, of: Sequences, blocks: int
) -> None:
    case = asked(of)
    plan = plan_shares(layout(case.inputs, of), Units(blocks, 2))
    first = run_here(plan, tmp_path, case.inputs, range(blocks))
    torch.testing.assert_close(first.double(), case.wanted, rtol=2**-7, atol=0.01)
    again = run_here(plan, tmp_path, case.inputs, range(blocks)[::-1])
    assert torch.equal(first, again)


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
    with pytest.raises(CubinError, match="takes 242816 bytes of shared memory.* 232448 on sm_90"):
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


def test_every_candidate_fits_as_often_as_it_should() -> None:
    for group, width in ((4, 128), (8, 64), (8, 128), (1, 128)):
        heads = Heads(64, 8, group, width, DType.BFLOAT16)
        for config in unit_candidates(heads):
            resident = -(-config.blocks // 132)
            assert resident * (config.shared_bytes(heads) + 1024) <= 228 * 1024
            assert config.stages >= 2
