"""Native kernels give a row the same bits whatever runs beside it, on any number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tskernels import _cpu
from tskernels.kernel import BoundCall
from tskernels.registry import REGISTRY


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    _cpu.set_num_threads(request.param)
    yield request.param
    _cpu.set_num_threads(1)


@pytest.fixture(params=["portable", _cpu.isa()])
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    _cpu.use_isa(request.param)
    yield request.param
    _cpu.use_isa(best)


best = _cpu.isa()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y = x.new_full((x.shape[0], weight.shape[0]), float("nan"))
    REGISTRY.resolve("linear.native").bind(BoundCall((x, weight, bias), (y,), {}))()
    return y


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 31, 48, 49, 50, 97])
@pytest.mark.parametrize(("n", "k"), [(193, 576), (5, 1537)])
def test_a_linear_row_does_not_depend_on_its_neighbours(rows: int, n: int, k: int) -> None:
    x, weight, bias = torch.randn(rows, k), torch.randn(n, k), torch.randn(n)
    together = linear(x, weight, bias)
    for row in range(rows):
        assert torch.equal(together[row : row + 1], linear(x[row : row + 1], weight, bias))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 90), st.integers(1, 130), st.booleans())
def test_any_linear_is_right(rows: int, n: int, k: int, biased: bool) -> None:
    x, weight = torch.randn(rows, k), torch.randn(n, k)
    bias = torch.randn(n) if biased else None
    want = torch.nn.functional.linear(
        x.double(), weight.double(), None if bias is None else bias.double()
    )
    error = (linear(x, weight, bias).double() - want).abs().max()
    assert error <= 1e-6 * k**0.5 * (x.abs().max() * weight.abs().max() + 1)


def test_nan_in_one_row_stays_there() -> None:
    x, weight = torch.randn(9, 64), torch.randn(33, 64)
    clean = linear(x, weight)
    x[4] = float("nan")
    y = linear(x, weight)
    assert y[4].isnan().all()
    assert torch.equal(y[[0, 1, 2, 3, 5, 6, 7, 8]], clean[[0, 1, 2, 3, 5, 6, 7, 8]])


def test_a_columns_value_does_not_depend_on_the_shard() -> None:
    x, weight = torch.randn(8, 576), torch.randn(960, 576)
    whole = linear(x, weight)
    parts = [linear(x, part) for part in (weight[:320], weight[320:641], weight[641:])]
    assert torch.equal(torch.cat(parts, 1), whole)


def attend(
    query: Tensor,
    cache: Tensor,
    table: Tensor,
    ends: Sequence[int],
    news: Sequence[int],
    window: int,
) -> Tensor:
    """Native attention of `news` last rows of each sequence up to `ends`."""
    y = torch.full_like(query, float("nan"))
    starts = torch.tensor([0, *news]).cumsum(0).int()
    inputs = (query, cache, table, torch.tensor(ends, dtype=torch.int32), starts)
    attributes = {"scale": 0.125, "window": window}
    REGISTRY.resolve("attention.native").bind(BoundCall(inputs, (y,), attributes))()
    return y


@pytest.mark.parametrize("window", [0, 40])
def test_prefill_in_any_chunks_and_decode_give_the_same_bits(window: int, threads: int) -> None:
    length, page_size = 150, 16
    cache = torch.randn(24, 2, 3, page_size, 64)
    table = torch.randperm(23)[:20].view(2, 10).int() + 1
    query = torch.randn(2, length, 9, 64)
    whole = attend(query[0], cache, table[:1], [length], [length], window)
    for row in range(length):  # a decode step of this sequence beside another one
        other = (row * 7) % length
        pair = torch.stack((query[0, row], query[1, other]))
        step = attend(pair, cache, table, [row + 1, other + 1], [1, 1], window)
        assert torch.equal(step[0], whole[row])
    for chunk in (1, 7, 32, 33):
        at = 0
        while at < length:
            new = min(chunk, length - at)
            rows = torch.cat((query[1, :3], query[0, at : at + new]))
            mixed = attend(rows, cache, table.flip(0), [3, at + new], [3, new], window)
            assert torch.equal(mixed[3:], whole[at : at + new])
            at += new


def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    x, weight = torch.randn(8, 576), torch.randn(3072, 576)
    shared = linear(x, weight)
    _cpu.set_num_threads(1)
    assert torch.equal(shared, linear(x, weight))


def test_every_instruction_set_is_right(instructions: str) -> None:
    assert _cpu.isa() == instructions
    x, weight = torch.randn(5, 577), torch.randn(67, 577)
    want = x.double() @ weight.double().t()
    torch.testing.assert_close(linear(x, weight).double(), want, rtol=1e-5, atol=1e-4)
    gate = torch.cat((torch.linspace(-120, 120, 1001), torch.tensor([0.0, -0.0, 3e38, -3e38])))
    y = torch.empty(1, 1005)
    up = torch.ones(1, 1005)
    REGISTRY.resolve("silu_mul.native").bind(BoundCall((gate[None], up), (y,), {}))()
    wide = gate.double()
    torch.testing.assert_close(y[0].double(), wide * torch.sigmoid(wide), rtol=3e-7, atol=1e-35)


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ValueError, match="no instruction set avx1024"):
        _cpu.use_isa("avx1024")


def test_indices_outside_are_refused_before_anything_is_touched() -> None:
    cache, key = torch.zeros(3, 2, 1, 4, 8), torch.ones(2, 1, 8)
    for slot in (12, -1):
        slots = torch.tensor([0, slot], dtype=torch.int32)
        kernel = REGISTRY.resolve("kv_write.native").bind(
            BoundCall((key, key, cache, slots), (cache,), {})
        )
        with pytest.raises(IndexError, match=rf"slot is {slot}, but must be in 0\.\.11"):
            kernel()
    assert cache.abs().sum() == 0
    query = torch.zeros(1, 1, 8)
    for table, ends, says in (
        ([[3, 0]], [5], "page is 3, but must be in 0..2"),
        ([[0, -1]], [5], "page is -1"),
        ([[0, 0]], [9], "seq_lens is 9"),
        ([[0, 0]], [0], "seq_lens is 0"),
    ):
        with pytest.raises(IndexError, match=says):
            attend(query, cache, torch.tensor(table, dtype=torch.int32), ends, [1], 0)


def test_layouts_that_a_native_kernel_cannot_take_are_refused_at_bind() -> None:
    x, weight, y = torch.randn(4, 8).t(), torch.randn(5, 4), torch.empty(8, 5)
    spec = REGISTRY.resolve("linear.native")
    with pytest.raises(ValueError, match="last dim has stride 8"):
        spec.bind(BoundCall((x, weight, None), (y,), {}))
    ids = torch.zeros(3, dtype=torch.int64)
    embedding = REGISTRY.resolve("embedding.native")
    with pytest.raises(ValueError, match="contiguous int32 indices"):
        embedding.bind(BoundCall((ids, weight), (torch.empty(3, 4),), {"vocab_start": 0}))
