"""The ops' references against independent implementations: torch, numpy and transformers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

from tskernels import ops


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 48), (5, 3, 16)])
def test_rms_norm_is_transformers_llama_norm(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    norm = modeling_llama.LlamaRMSNorm(shape[-1], eps=1e-3)
    torch.nn.init.normal_(norm.weight)
    norm = norm.to(dtype)
    x = torch.randn(*shape).to(dtype)
    assert torch.equal(ops.rms_norm(x, norm.weight, eps=1e-3), norm(x))


def test_rotary_is_transformers_half_rotation() -> None:
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, max_position_embeddings=4096)
    embedding = modeling_llama.LlamaRotaryEmbedding(config)
    positions = torch.tensor([0, 1, 5, 4000])
    q, k = torch.randn(4, 4, 16), torch.randn(4, 2, 16)
    cos, sin = embedding(q, positions.unsqueeze(0))
    table = ops.rotary_table(positions.int(), embedding.inv_freq)
    assert torch.equal(table, torch.cat((cos[0, :, :8], sin[0, :, :8]), -1))
    apply = cast("Callable[..., tuple[Tensor, Tensor]]", modeling_llama.apply_rotary_pos_emb)  # pyright: ignore[reportUnknownMemberType]
    want = apply(q.transpose(0, 1).unsqueeze(0), k.transpose(0, 1).unsqueeze(0), cos, sin)
    for got, expected in zip((ops.rotary(q, table), ops.rotary(k, table)), want, strict=True):
        torch.testing.assert_close(got, expected[0].transpose(0, 1), rtol=1e-6, atol=1e-6)


def test_rotary_scale_and_partial_width() -> None:
    positions, inv_freq = torch.tensor([3, 9], dtype=torch.int32), torch.tensor([1.0, 0.5])
    table = ops.rotary_table(positions, inv_freq, scale=2.0)
    angles = np.outer([3, 9], [1.0, 0.5])
    want = 2 * np.concatenate((np.cos(angles), np.sin(angles)), -1)
    np.testing.assert_allclose(table.numpy(), want, rtol=1e-6)
    x = torch.randn(2, 1, 7, dtype=torch.float64)
    turned = ops.rotary(x, ops.rotary_table(positions, inv_freq.double())).numpy()[:, 0]
    rows = x.numpy()[:, 0]
    pairs = (rows[:, :2] + 1j * rows[:, 2:4]) * np.exp(1j * angles)
    np.testing.assert_allclose(turned[:, :2], pairs.real, rtol=1e-12)
    np.testing.assert_allclose(turned[:, 2:4], pairs.imag, rtol=1e-12)
    np.testing.assert_array_equal(turned[:, 4:], rows[:, 4:])


def contiguous_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Torch's own attention over [n, h, D] queries at the end of [L, h, D] keys."""
    n, length = q.shape[0], k.shape[0]
    at = torch.arange(length - n, length)[:, None]
    seen = torch.arange(length)[None]
    mask = (seen <= at) & ((seen > at - window) if window else True)
    heads = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=mask,
        scale=scale,
        enable_gqa=True,
    )
    return heads[0].transpose(0, 1)


@pytest.mark.parametrize("window", [0, 5])
def test_write_then_attend_is_contiguous_attention(window: int) -> None:
    """Three sequences prefilled in two chunks each through kv_write and attention."""
    lengths, page_size, pages_each = (3, 11, 17), 4, 5
    cache = torch.full((16, 2, 2, page_size, 8), float("nan"), dtype=torch.float64)
    table = torch.randperm(15)[: 3 * pages_each].view(3, pages_each).int() + 1
    made = [tuple(torch.randn(n, h, 8).double() for h in (6, 2, 2)) for n in lengths]
    got: list[list[Tensor]] = [[], [], []]
    for chunk in range(2):
        spans = [(0, n // 2) if chunk == 0 else (n // 2, n) for n in lengths]
        parts = [[x[a:b] for x in qkv] for qkv, (a, b) in zip(made, spans, strict=True)]
        q, k, v = (torch.cat([part[i] for part in parts]) for i in range(3))
        slots = [
            int(table[s, p // page_size]) * page_size + p % page_size
            for s, (a, b) in enumerate(spans)
            for p in range(a, b)
        ]
        cache = ops.kv_write(k, v, cache, torch.tensor(slots, dtype=torch.int32))
        starts = np.cumsum([0] + [b - a for a, b in spans]).astype(np.int32)
        ends = torch.tensor([b for _, b in spans], dtype=torch.int32)
        y = ops.attention(q, cache, table, ends, torch.tensor(starts), scale=0.3, window=window)
        for s in range(3):
            got[s].append(y[int(starts[s]) : int(starts[s + 1])])
    for s in range(3):
        want = contiguous_attention(*made[s], scale=0.3, window=window)
        torch.testing.assert_close(torch.cat(got[s]), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", [0, 5])
def test_sinks_are_gpt_oss(window: int) -> None:
    """Against transformers' eager attention, which adds a column of sinks to the scores."""
    n, length, page_size = 6, 13, 4
    q, k, v = torch.randn(n, 4, 8), torch.randn(length, 2, 8), torch.randn(length, 2, 8)
    layer = SimpleNamespace(sinks=torch.randn(4), num_key_value_groups=2, training=False)
    at, seen = torch.arange(length - n, length)[:, None], torch.arange(length)[None]
    hidden = (seen > at) | ((seen <= at - window) if window else False)
    attend = cast("Callable[..., tuple[Tensor, Tensor]]", modeling_gpt_oss.eager_attention_forward)  # pyright: ignore[reportUnknownMemberType]
    heads = (x.transpose(0, 1)[None] for x in (q, k, v))
    bias = torch.zeros(n, length).masked_fill(hidden, float("-inf"))
    want, _ = attend(layer, *heads, attention_mask=bias, scaling=0.3)
    cache = torch.zeros(5, 2, 2, page_size, 8)
    ops.kv_write(k, v, cache, torch.arange(length, dtype=torch.int32) + page_size)
    table = torch.tensor([[1, 2, 3, 4]], dtype=torch.int32)
    sizes = (torch.tensor([length]).int(), torch.tensor([0, n]).int())
    got = ops.attention(q, cache, table, *sizes, layer.sinks, scale=0.3, window=window)
    torch.testing.assert_close(got, want[0], rtol=1e-5, atol=1e-6)


def test_shards_of_an_embedding_add_up() -> None:
    weight, ids = torch.randn(10, 4), torch.tensor([0, 3, 4, 9, 4], dtype=torch.int32)
    shards = [
        ops.embedding(ids, part, vocab_start=start)
        for start, part in ((0, weight[:4]), (4, weight[4:8]), (8, weight[8:]))
    ]
    assert torch.equal(torch.stack(shards).sum(0), functional.embedding(ids.long(), weight))


def test_simple_ops_agree_with_numpy() -> None:
    a, b = torch.randn(3, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    x, y = a.numpy(), b.numpy()
    np.testing.assert_array_equal(ops.add(a, b).numpy(), x + y)
    silu = x / (1 + np.exp(-x))
    np.testing.assert_allclose(ops.silu_mul(a, b).numpy(), silu * y, rtol=1e-13)
    rows = torch.tensor([2, 0, 2], dtype=torch.int32)
    np.testing.assert_array_equal(ops.select_rows(a, rows).numpy(), x[[2, 0, 2]])
    np.testing.assert_array_equal(ops.slice(a, dim=1, start=1, size=3).numpy(), x[:, 1:4])
    np.testing.assert_array_equal(
        ops.permute(rows, dim=0, sizes=(3, 1), order=(1, 0)).numpy(), rows.numpy()
    )
    blocks = torch.arange(24).reshape(12, 2)
    moved = ops.permute(blocks, dim=0, sizes=(2, 3, 2), order=(1, 0, 2))
    np.testing.assert_array_equal(moved[:, 0].numpy(), [0, 2, 12, 14, 4, 6, 16, 18, 8, 10, 20, 22])
    np.testing.assert_array_equal(ops.mask(a, coordinate=0).numpy(), x)
    assert ops.mask(a, coordinate=1).abs().sum() == 0
    weight, bias = torch.randn(4, 5).double(), torch.randn(4).double()
    want = x @ weight.numpy().T + bias.numpy()
    np.testing.assert_allclose(ops.linear(a, weight, bias).numpy(), want, rtol=1e-12)
