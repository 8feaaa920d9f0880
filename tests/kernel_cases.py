"""Calls that kernels are compared with their op's reference on: the ops of dense models."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor

from tskernels.schema import AttributeValue


@dataclass(frozen=True)
class Case:
    """Inputs of one call, floating ones in the dtype under test; `rows` are those that count."""

    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, AttributeValue]
    rows: int | None = None


Make: TypeAlias = Callable[[torch.dtype], Case]


def seed(value: int) -> None:
    torch.manual_seed(value)  # pyright: ignore[reportUnknownMemberType]


def normal(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def column_slice(dtype: torch.dtype, rows: int, columns: int, *, even: bool = False) -> Tensor:
    """A [rows, columns] view whose rows are wider and whose neighbours are NaN.

    Where `even`, its rows begin at multiples of 16 bytes.
    """
    before, beside = (8, 24) if even else (5, 11)
    wide = torch.full((rows, columns + beside), float("nan"), dtype=dtype)
    view = wide[:, before : before + columns]
    view.copy_(normal(dtype, rows, columns))
    return view


def beyond_half(make: Make, *positions: int) -> Make:
    """The case with the inputs at `positions` so large that sums overflow a half, if held in one.

    Half itself, which would overflow, keeps its numbers.
    """

    def made(dtype: torch.dtype) -> Case:
        case = make(dtype)
        for position in positions if dtype != torch.float16 else ():
            value = case.inputs[position]
            assert value is not None
            value.mul_(40_000.0)
        return case

    return made


def linear_case(
    rows: int, n: int, k: int, *, bias: bool = False, strided: bool = False, even: bool = False
) -> Make:
    """X is a view of wider rows where `strided`, or where `even`, at multiples of 16 bytes."""

    def make(dtype: torch.dtype) -> Case:
        sliced = strided or even
        x = column_slice(dtype, rows, k, even=even) if sliced else normal(dtype, rows, k)
        return Case((x, normal(dtype, n, k), normal(dtype, n) if bias else None), {})

    return make


def scaled_linear_case(
    rows: int,
    n: int,
    k: int,
    block: tuple[int, int],
    *,
    bias: bool = False,
    strided: bool = False,
) -> Make:
    """Weights over all of e4m3's range, 448 and subnormals among them, in blocks cut short."""

    def make(dtype: torch.dtype) -> Case:
        x = column_slice(dtype, rows, k) if strided else normal(dtype, rows, k)
        exponents = torch.randint(-9, 9, (n, k), dtype=torch.int64)
        spread = torch.ldexp(torch.rand(n, k, dtype=torch.float64) * 2 - 1, exponents)
        weight = spread.clamp(-448, 448)
        weight[0, 0] = 448
        blocks = (-(-n // block[0]), -(-k // block[1]))
        scale = torch.rand(blocks, dtype=torch.float64) * 0.02 + 0.001
        wide = torch.promote_types(dtype, torch.float32)
        operands = (x, weight.to(torch.float8_e4m3fn), scale.to(wide))
        return Case((*operands, normal(dtype, n) if bias else None), {"block": block})

    return make


def embedding_case(vocab_start: int) -> Make:
    def make(dtype: torch.dtype) -> Case:
        ids = ints(0, 6, 7, 8, 16, 17, 40, 7)
        return Case((ids, normal(dtype, 10, 37)), {"vocab_start": vocab_start})

    return make


def norm_case(*shape: int, strided: bool = False) -> Make:
    def make(dtype: torch.dtype) -> Case:
        x = normal(dtype, *shape)
        if strided:
            x = column_slice(dtype, shape[0], shape[1] * shape[2]).view(shape)
        return Case((x, normal(dtype, shape[-1])), {"eps": 1e-5})

    return make


def pair_case(rows: int, columns: int, *, strided: bool = False) -> Make:
    def make(dtype: torch.dtype) -> Case:
        make_one = column_slice if strided else normal
        return Case((make_one(dtype, rows, columns), make_one(dtype, rows, columns)), {})

    return make


def rotary_table_case(rows: int, half: int, scale: float) -> Make:
    def make(dtype: torch.dtype) -> Case:
        positions = torch.randint(0, 4000, (rows,), dtype=torch.int32)
        inv_freq = 10000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
        wide = torch.promote_types(dtype, torch.float32)
        return Case((positions, inv_freq.to(wide)), {"scale": scale})

    return make


def rotary_case(
    rows: int,
    heads: int,
    width: int,
    turned: int,
    *,
    strided: bool = False,
    interleaved: bool = False,
) -> Make:
    def make(dtype: torch.dtype) -> Case:
        x = (column_slice if strided else normal)(dtype, rows, heads * width)
        angles = torch.rand(rows, turned // 2, dtype=torch.float64) * 6.3
        table = torch.cat((angles.cos(), angles.sin()), -1)
        wide = torch.promote_types(dtype, torch.float32)
        inputs = (x.view(rows, heads, width), table.to(wide))
        return Case(inputs, {"interleaved": interleaved})

    return make


def kv_write_case(rows: int, heads: int, width: int, page_size: int) -> Make:
    def make(dtype: torch.dtype) -> Case:
        both = column_slice(dtype, rows, 2 * heads * width)
        key = both[:, : heads * width].view(rows, heads, width)
        value = both[:, heads * width :].view(rows, heads, width)
        cache = normal(dtype, 7, 2, heads, page_size, width)
        slots = torch.randperm(7 * page_size)[:rows].to(torch.int32)
        return Case((key, value, cache, slots), {})

    return make


def attention_case(
    *lengths: tuple[int, int],
    heads: tuple[int, int] = (6, 2),
    width: int = 16,
    page_size: int = 8,
    window: int = 0,
    padding: int = 3,
    sinks: bool = False,
) -> Make:
    """Sequences of (new rows, total length); everything beyond a length is NaN."""

    def make(dtype: torch.dtype) -> Case:
        rows = sum(new for new, _ in lengths)
        most = max(-(-length // page_size) for _, length in lengths) + 1
        total = 1 + sum(-(-length // page_size) for _, length in lengths)
        cache = torch.full((total, 2, heads[1], page_size, width), float("nan"), dtype=dtype)
        table = torch.zeros(len(lengths), most, dtype=torch.int32)
        pages = iter(random.Random(total).sample(range(1, total), total - 1))
        for s, (_, length) in enumerate(lengths):
            for first in range(0, length, page_size):
                page, held = next(pages), min(page_size, length - first)
                table[s, first // page_size] = page
                cache[page, :, :, :held] = normal(dtype, 2, heads[1], held, width)
        query = column_slice(dtype, rows + padding, heads[0] * width)
        query[rows:] = float("nan")
        starts = ints(*accumulate((new for new, _ in lengths), initial=0))
        inputs = (query.view(-1, heads[0], width), cache, table, ints(*(n for _, n in lengths)))
        beside = normal(dtype, heads[0]) if sinks else None
        options = {"scale": width**-0.5, "window": window}
        return Case((*inputs, starts, beside), options, rows)

    return make


def add_rms_norm_case(rows: int, width: int, *, strided: bool = False) -> Make:
    def make(dtype: torch.dtype) -> Case:
        make_one = column_slice if strided else normal
        both = (make_one(dtype, rows, width), make_one(dtype, rows, width))
        return Case((*both, normal(dtype, width)), {"eps": 1e-5})

    return make


def rope_kv_write_case(
    rows: int, heads: tuple[int, int], width: int, turned: int, *, norm: bool, **options: bool
) -> Make:
    """Query, key and value as column slices of one packed product."""

    def make(dtype: torch.dtype) -> Case:
        parts = [column_slice(dtype, rows, h * width).view(rows, h, width) for h in heads]
        _, value, cache, slots = kv_write_case(rows, heads[1], width, 3)(dtype).inputs
        table = rotary_case(rows, 1, width, turned)(dtype).inputs[1]
        gains = [normal(dtype, width), normal(dtype, width)] if norm else []
        attributes: dict[str, AttributeValue] = {"eps": 1e-6} if norm else {}
        return Case((*parts, value, *gains, table, cache, slots), {**attributes, **options})

    return make


def select_rows_case(dtype: torch.dtype) -> Case:
    return Case((column_slice(dtype, 9, 21), ints(8, 0, 3, 3)), {})


def mask_case(coordinate: int) -> Make:
    return lambda dtype: Case((normal(dtype, 5, 7),), {"coordinate": coordinate})


def slice_case(dim: int, start: int, size: int) -> Make:
    return lambda dtype: Case(
        (column_slice(dtype, 6, 10),), {"dim": dim, "start": start, "size": size}
    )


def permute_case(dim: int, sizes: tuple[int, ...], order: tuple[int, ...]) -> Make:
    return lambda dtype: Case(
        (column_slice(dtype, 12, 12),), {"dim": dim, "sizes": sizes, "order": order}
    )


DENSE: Mapping[str, tuple[Make, ...]] = {
    "linear": (
        *(linear_case(rows, 37, 61) for rows in (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 31, 33, 65)),
        linear_case(1, 1, 1),
        linear_case(3, 5, 7, bias=True),
        linear_case(8, 192, 576, bias=True, strided=True),
        linear_case(1, 577, 576, bias=True),
        linear_case(6, 64, 1537, strided=True),
        linear_case(1, 24, 1024, bias=True),
        linear_case(7, 16, 1536, strided=True),
        linear_case(8, 24, 2048, bias=True),
        linear_case(11, 16, 1024),
        linear_case(33, 192, 256, bias=True, even=True),
        linear_case(64, 64, 512),
        beyond_half(linear_case(1, 9, 40), 0),
        beyond_half(linear_case(5, 9, 40), 1),
    ),
    "embedding": (embedding_case(0), embedding_case(7)),
    "rms_norm": (
        norm_case(1, 576),
        norm_case(5, 61),
        norm_case(5, 3, 13),
        norm_case(5, 3, 16, strided=True),
        beyond_half(norm_case(2, 40), 0),
    ),
    "add": (pair_case(1, 1), pair_case(3, 67), pair_case(3, 67, strided=True), pair_case(64, 576)),
    "silu_mul": (pair_case(1, 1536), pair_case(5, 67, strided=True), pair_case(33, 129)),
    "rotary_table": (rotary_table_case(1, 32, 1.0), rotary_table_case(9, 5, 1.25)),
    "rotary": (
        rotary_case(1, 9, 64, 64),
        rotary_case(5, 3, 10, 10, strided=True),
        rotary_case(5, 2, 24, 8, strided=True),
        rotary_case(40, 3, 64, 32),
        rotary_case(5, 3, 10, 10, strided=True, interleaved=True),
        rotary_case(7, 2, 24, 8, interleaved=True),
    ),
    "add_rms_norm": (
        add_rms_norm_case(1, 1),
        add_rms_norm_case(3, 67, strided=True),
        add_rms_norm_case(64, 576),
        beyond_half(add_rms_norm_case(2, 40), 0, 1),
    ),
    "linear_silu_mul": (
        *(linear_case(rows, 74, 61) for rows in (1, 2, 5, 9, 33)),
        linear_case(3, 10, 7, bias=True),
        linear_case(4, 1536, 64, bias=True, strided=True),
        linear_case(8, 32, 1024, bias=True),
        linear_case(3, 48, 2048, strided=True),
        linear_case(17, 128, 256, bias=True, even=True),
        linear_case(64, 64, 384),
        beyond_half(linear_case(1, 18, 40), 1),
        beyond_half(linear_case(5, 18, 40), 1),
    ),
    "scaled_linear": (
        *(scaled_linear_case(rows, 37, 61, (32, 32)) for rows in (1, 2, 16, 33, 65)),
        scaled_linear_case(1, 1, 1, (128, 128)),
        scaled_linear_case(3, 5, 7, (4, 16), bias=True),
        scaled_linear_case(8, 130, 320, (128, 128), bias=True, strided=True),
        scaled_linear_case(1, 131, 576, (128, 128), bias=True),
        scaled_linear_case(6, 64, 517, (64, 128), strided=True),
        scaled_linear_case(1, 64, 2048, (32, 128), bias=True),
        scaled_linear_case(8, 48, 3072, (16, 128), bias=True, strided=True),
        beyond_half(scaled_linear_case(1, 16, 2048, (16, 128)), 0),
        beyond_half(scaled_linear_case(5, 32, 2048, (16, 128)), 0),
        beyond_half(scaled_linear_case(1, 9, 40, (16, 16)), 0),
        beyond_half(scaled_linear_case(5, 9, 40, (16, 16)), 0),
    ),
    "scaled_linear_silu_mul": (
        *(scaled_linear_case(rows, 74, 61, (37, 32)) for rows in (1, 2, 9, 33)),
        scaled_linear_case(3, 32, 7, (16, 16), bias=True),
        scaled_linear_case(1, 256, 384, (128, 128), bias=True),
        scaled_linear_case(4, 256, 256, (128, 128), strided=True),
        scaled_linear_case(1, 64, 2048, (16, 128), bias=True),
        scaled_linear_case(5, 64, 2048, (32, 128), bias=True),
        beyond_half(scaled_linear_case(5, 18, 40, (9, 16)), 0),
    ),
    "rope_kv_write": (
        rope_kv_write_case(1, (9, 3), 64, 64, norm=False),
        rope_kv_write_case(7, (4, 2), 24, 8, norm=False),
        rope_kv_write_case(5, (2, 1), 10, 10, norm=False, interleaved=True),
    ),
    "qk_norm_rope_kv_write": (
        rope_kv_write_case(1, (8, 2), 64, 64, norm=True),
        rope_kv_write_case(7, (4, 2), 24, 8, norm=True),
        rope_kv_write_case(5, (2, 1), 10, 10, norm=True, interleaved=True),
        rope_kv_write_case(18, (10, 5), 24, 8, norm=True),
    ),
    "kv_write": (kv_write_case(1, 3, 64, 16), kv_write_case(11, 2, 10, 3)),
    "attention": (
        attention_case((1, 1)),
        attention_case((1, 9), (1, 16), (1, 17), (1, 40)),
        attention_case((1, 300), heads=(9, 3), width=64, page_size=16),
        attention_case((5, 5), (1, 33), (0, 0), (7, 30)),
        attention_case((5, 5), (1, 33), (7, 30), window=6),
        attention_case((70, 150), (40, 40), heads=(4, 4), width=10, page_size=5),
        attention_case((1, 100), (1, 3), window=64, heads=(8, 1), width=128, page_size=16),
        attention_case((0, 0), (0, 0), padding=4),
        attention_case((1, 70), (0, 0), (1, 200), (1, 64), page_size=64),
        attention_case(
            (1, 130), (0, 0), (1, 65), heads=(8, 2), width=128, page_size=64, sinks=True
        ),
        attention_case((70, 150), (3, 65), (1, 2), page_size=64),
        attention_case((1, 150), (9, 70), window=70, page_size=64),
        attention_case((1, 9), (5, 5), (7, 30), sinks=True),
        attention_case((1, 9), (5, 20), (7, 30), window=6, sinks=True),
        beyond_half(attention_case((1, 9), (1, 70), (0, 0), (1, 3)), 1),
    ),
    "select_rows": (select_rows_case,),
    "mask": (mask_case(0), mask_case(2)),
    "slice": (slice_case(0, 2, 3), slice_case(1, 4, 5), slice_case(-1, 0, 10)),
    "permute": (permute_case(0, (2, 3, 2), (1, 0, 2)), permute_case(1, (2, 2, 3), (1, 2, 0))),
}
