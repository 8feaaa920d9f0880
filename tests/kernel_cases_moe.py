"""Calls that kernels are compared with their op's reference on: experts and latent attention."""

from __future__ import annotations

import random
from collections.abc import Mapping

import torch
from kernel_cases import Case, Make, attention_case, column_slice, ints, normal

from tskernels.schema import AttributeValue


def route_case(rows: int, count: int, *, bias: bool = False, **options: AttributeValue) -> Make:
    """Every third row is padding, and NaN."""

    def make(dtype: torch.dtype) -> Case:
        logits = normal(dtype, rows, count)
        slots = torch.arange(rows, dtype=torch.int32) % 3
        logits[slots == 0] = float("nan")
        correction = normal(torch.float32, count).to(torch.promote_types(dtype, torch.float32))
        return Case((logits, slots, correction if bias else None), options)

    return make


def experts_case(
    rows: int, start: int, held: int, *, bias: bool = False, **options: AttributeValue
) -> Make:
    """This shard holds `held` of 7 experts; row 0 reaches none, and is NaN."""

    def make(dtype: torch.dtype) -> Case:
        x, top_k, width = column_slice(dtype, rows, 13), 3, 9
        ids = torch.stack([torch.randperm(7)[:top_k] for _ in range(rows)]).to(torch.int32)
        x[0], ids[0] = float("nan"), -1
        shapes = ((held, width, 13), (held, width, 13), (held, 13, width))
        gate, up, down = (normal(dtype, *shape) for shape in shapes)
        biases = tuple(normal(dtype, held, n) if bias else None for n in (width, width, 13))
        weights = normal(dtype, rows, top_k).abs()
        attributes = {"expert_start": start, **options}
        return Case((x, ids, weights, gate, up, down, *biases), attributes)

    return make


def latent_write_case(rows: int, rank: int, turned: int, page_size: int) -> Make:
    def make(dtype: torch.dtype) -> Case:
        both = column_slice(dtype, rows, rank + turned)
        rope = both[:, rank:].view(rows, 1, turned)
        cache = normal(dtype, 7, 1, 1, page_size, rank + turned)
        slots = random.Random(rows).sample(range(7 * page_size), rows)
        return Case((both[:, :rank], rope, cache, ints(*slots)), {})

    return make


def mla_case(*lengths: tuple[int, int], absorbed: bool, heads: int = 3, page_size: int = 4) -> Make:
    """Sequences of (new rows, total length); everything beyond a length is NaN."""
    nope, turned, rank, value = 6, 4, 10, 5

    def make(dtype: torch.dtype) -> Case:
        grouped = attention_case(
            *lengths, heads=(heads, 1), width=rank + turned, page_size=page_size
        )(dtype)
        query, cache, *rest = grouped.inputs[:5]
        assert query is not None
        assert cache is not None
        parts = column_slice(dtype, query.shape[0], heads * (nope + turned))
        parts[grouped.rows :] = float("nan")
        both = parts.view(-1, heads, nope + turned)
        kv_b = normal(dtype, heads * (nope + value), rank)
        inputs = (both[..., :nope], both[..., nope:], cache[:, :1], kv_b, *rest)
        return Case(inputs, {"scale": 0.4, "absorbed": absorbed}, grouped.rows)

    return make


def dispatch_case(ranks: int, *, step: int, held: int, first: int = 0) -> Make:
    """Nine rows and three of twelve experts each; one row reaches none, and is NaN."""

    def make(dtype: torch.dtype) -> Case:
        x, ids = column_slice(dtype, 9, 5), torch.stack([torch.randperm(12)[:3] for _ in range(9)])
        x[4], ids[4] = float("nan"), -1
        where = {"ranks": ranks, "step": step, "held": held, "first": first}
        return Case((x, ids.int(), normal(dtype, 9, 3).abs()), where)

    return make


def combine_case(ranks: int, *, step: int, held: int, first: int = 0) -> Make:
    """What no destination was sent is NaN."""

    def make(dtype: torch.dtype) -> Case:
        sent = dispatch_case(ranks, step=step, held=held, first=first)(dtype)
        _, ids, _ = sent.inputs
        assert ids is not None
        y = normal(dtype, ranks, 9, 5)
        for d in range(ranks):
            low = first + d * step
            y[d][~((ids >= low) & (ids < low + held)).any(1)] = float("nan")
        return Case((y.flatten(0, 1), ids), sent.attributes)

    return make


MOE: Mapping[str, tuple[Make, ...]] = {
    "route": (
        route_case(7, 5, top_k=1),
        route_case(2, 16, top_k=4, normalize=True),
        route_case(5, 9, top_k=9, scoring="softmax_topk"),
        route_case(5, 16, top_k=3, scoring="sigmoid", groups=4, top_groups=2, scale=2.5),
        route_case(8, 12, bias=True, top_k=4, groups=6, top_groups=3, normalize=True),
        route_case(4, 6, bias=True, top_k=2, scoring="sigmoid", groups=6, top_groups=3),
    ),
    "experts": (
        experts_case(9, 0, 7),
        experts_case(1, 0, 7),
        experts_case(6, 2, 3, bias=True),
        experts_case(40, 5, 2, bias=True, activation="swiglu", alpha=1.702, limit=0.9),
    ),
    "latent_write": (latent_write_case(1, 10, 4, 16), latent_write_case(9, 6, 2, 3)),
    "mla": tuple(
        mla_case(*lengths, absorbed=absorbed, heads=heads)
        for absorbed in (False, True)
        for heads, lengths in (
            (1, ((1, 1),)),
            (3, ((1, 9), (1, 4), (1, 5), (1, 40))),
            (4, ((5, 5), (1, 33), (0, 0), (7, 30))),
            (2, ((0, 0), (0, 0))),
        )
    ),
    "dispatch": (dispatch_case(4, step=3, held=3), dispatch_case(2, step=6, held=3, first=3)),
    "combine": (combine_case(4, step=3, held=3), combine_case(2, step=6, held=3, first=3)),
}
