"""Decode attention's inputs, of sequences of any lengths, and what it should give, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from tskernels.launch import ALIGNED, CallLayout, Operand
from tskernels.schema import DType, TensorType


@dataclass(frozen=True)
class Sequences:
    """Lengths of sequences, those that have no row or three in this step, and their heads."""

    lengths: tuple[int, ...]
    kv_heads: int
    group: int
    width: int
    page: int
    window: int = 0
    sinks: bool = False
    idle: tuple[int, ...] = ()
    several: tuple[int, ...] = ()


@dataclass(frozen=True)
class Asked:
    """The inputs of an attention, and what it should give: NaN where it should give nothing.

    Numbers beyond a sequence are NaN too.
    """

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
    rows = [0 if s in of.idle else 3 if s in of.several else 1 for s in range(len(counts))]
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
        if rows[s] == 1:
            wanted.append(attention(query[sum(rows[:s])], held, sinks, of))
        else:
            wanted.extend([torch.full_like(query[0].double(), float("nan"))] * rows[s])
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
