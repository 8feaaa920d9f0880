"""Latent attention against its formula, head by head in numpy: pages, chunks, both kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.models.deepseek_v3 import modeling_deepseek_v3

from tskernels import ops
from tskernels.kernel import BoundCall
from tskernels.registry import REGISTRY
from tskernels.shapes import ShapeError

HEADS, NOPE, TURNED, RANK, VALUE = 3, 6, 4, 10, 5
SCALE, PAGE_SIZE = 0.37, 4

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Floats = NDArray[np.float64]


def reference(*inputs: Tensor) -> Tensor:
    return ops.mla(*inputs, scale=SCALE)


def kernel(absorbed: bool) -> Attend:
    def run(*inputs: Tensor) -> Tensor:
        query = inputs[0]
        y = torch.full((*query.shape[:2], VALUE), float("nan"), dtype=query.dtype)
        call = BoundCall(inputs, (y,), {"scale": SCALE, "absorbed": absorbed})
        REGISTRY.resolve("mla.torch").bind(call)()
        return y

    return run


def formula(query: Floats, rope: Floats, latents: Floats, keys: Floats, kv_b: Floats) -> Floats:
    """One sequence, all rows at once: query [n, h, Dn], rope [n, h, Dr], latents [n, R], keys."""
    out = np.zeros((len(query), HEADS, VALUE))
    for h in range(HEADS):
        block = kv_b[h * (NOPE + VALUE) : (h + 1) * (NOPE + VALUE)]
        for t in range(len(query)):
            scores = [
                SCALE * (query[t, h] @ (block[:NOPE] @ latents[j]) + rope[t, h] @ keys[j])
                for j in range(t + 1)
            ]
            weights = np.exp(np.array(scores) - max(scores))
            weights /= weights.sum()
            values = [block[NOPE:] @ latents[j] for j in range(t + 1)]
            out[t, h] = sum(w * v for w, v in zip(weights, values, strict=True))
    return out


@pytest.mark.parametrize("attend", [reference, kernel(False), kernel(True)])
def test_chunks_and_decodes_are_the_formula(attend: Attend) -> None:
    """Three sequences of uneven lengths: prefill in parts, mixed steps, NaN in all other pages."""
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    lengths = (11, 5, 2)
    table = torch.tensor([[7, 2, 9], [4, 1, 0], [5, 0, 0]], dtype=torch.int32)
    shape = (10, 1, 1, PAGE_SIZE, RANK + TURNED)
    cache = torch.full(shape, float("nan"), dtype=torch.float64)
    kv_b = torch.randn(HEADS * (NOPE + VALUE), RANK, dtype=torch.float64)
    widths = (HEADS * NOPE, HEADS * TURNED, RANK, TURNED)
    made = [tuple(torch.randn(n, width, dtype=torch.float64) for width in widths) for n in lengths]
    steps = [(4, 0, 1), (9, 3, 1), (10, 4, 2), (11, 5, 2)]
    done, got = (0, 0, 0), list[list[Tensor]]([[], [], []])
    for ends in steps:
        spans = list(zip(done, ends, strict=True))
        slots = [
            int(table[s, p // PAGE_SIZE]) * PAGE_SIZE + p % PAGE_SIZE
            for s, span in enumerate(spans)
            for p in range(*span)
        ]
        parts = [[x[a:b] for x in four] for four, (a, b) in zip(made, spans, strict=True)]
        query, rope, latent, key = (torch.cat([p[i] for p in parts]) for i in range(4))
        rows = len(query)
        cache = ops.latent_write(
            latent, key.view(rows, 1, TURNED), cache, torch.tensor(slots, dtype=torch.int32)
        )
        bounds = np.cumsum([0] + [b - a for a, b in spans]).astype(np.int32)
        y = attend(
            query.view(rows, HEADS, NOPE),
            rope.view(rows, HEADS, TURNED),
            cache,
            kv_b,
            table,
            torch.tensor(ends, dtype=torch.int32),
            torch.tensor(bounds),
        )
        for s in range(3):
            got[s].append(y[int(bounds[s]) : int(bounds[s + 1])])
        done = ends
    for s, (query, rope, latent, key) in enumerate(made):
        heads = (query.view(-1, HEADS, NOPE), rope.view(-1, HEADS, TURNED), latent, key, kv_b)
        want = formula(*(x.numpy() for x in heads))
        np.testing.assert_allclose(torch.cat(got[s]).numpy(), want, rtol=1e-10, atol=1e-12)


def test_interleaved_rotary_turns_neighbours() -> None:
    """Each pair is a complex number times e^(i angle); dims behind the table's pass through."""
    positions, inv_freq = np.array([3, 900]), np.array([1.0, 0.25])
    table = ops.rotary_table(torch.tensor(positions, dtype=torch.int32), torch.tensor(inv_freq))
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    turned = ops.rotary(x, table, interleaved=True).numpy()
    rows = x.numpy()
    pairs = rows[..., 0:4:2] + 1j * rows[..., 1:4:2]
    want = pairs * np.exp(1j * np.outer(positions, inv_freq))[:, None]
    np.testing.assert_allclose(turned[..., 0:4:2], want.real, rtol=1e-12)
    np.testing.assert_allclose(turned[..., 1:4:2], want.imag, rtol=1e-12)
    np.testing.assert_array_equal(turned[..., 4:], rows[..., 4:])


def test_interleaved_scores_are_transformers() -> None:
    """Transformers leaves its pairs as halves, in queries and keys alike: the same products."""
    angles = torch.rand(5, 4, dtype=torch.float64) * 6.3
    q, k = (torch.randn(5, heads, 8, dtype=torch.float64) for heads in (3, 1))
    cos, sin = (torch.cat((f, f), -1)[None] for f in (angles.cos(), angles.sin()))
    apply = cast(
        "Callable[..., tuple[Tensor, Tensor]]",
        modeling_deepseek_v3.apply_rotary_pos_emb_interleave,  # pyright: ignore[reportUnknownMemberType]
    )
    theirs = apply(q.transpose(0, 1)[None], k.transpose(0, 1)[None], cos, sin)
    table = torch.cat((angles.cos(), angles.sin()), -1)
    ours = [ops.rotary(x, table, interleaved=True).transpose(0, 1)[None] for x in (q, k)]
    want, got = (a @ b.transpose(-1, -2) for a, b in (theirs, ours))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kv_b": (HEADS * (NOPE + VALUE) + 1, RANK)}, "heads need a multiple of"),
        ({"kv_b": (HEADS * NOPE, RANK)}, f"over {NOPE} each"),
        ({"kv_b": (HEADS * (NOPE + VALUE), RANK + 1)}, "mla width"),
        ({"cache": (4, 2, 1, PAGE_SIZE, RANK + TURNED)}, "one latent is 1, but"),
        ({"cache": (4, 1, 2, PAGE_SIZE, RANK + TURNED)}, "one head is 1, but"),
        ({"query_rope": (2, HEADS + 1, TURNED)}, "mla heads"),
        ({"query_starts": (2,)}, "mla starts"),
    ],
)
def test_inputs_that_do_not_fit_are_named(change: dict[str, tuple[int, ...]], told: str) -> None:
    shapes = {
        "query": (2, HEADS, NOPE),
        "query_rope": (2, HEADS, TURNED),
        "cache": (4, 1, 1, PAGE_SIZE, RANK + TURNED),
        "kv_b": (HEADS * (NOPE + VALUE), RANK),
        "block_table": (2, 3),
        "seq_lens": (2,),
        "query_starts": (3,),
    } | change
    inputs = [
        torch.zeros(shape, dtype=torch.float32 if i < 4 else torch.int32)
        for i, shape in enumerate(shapes.values())
    ]
    with pytest.raises(ShapeError, match=told):
        reference(*inputs)
