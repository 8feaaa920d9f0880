"""Batches of paged sequences: the int32 inputs that a program or an eager model takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tscompile.models import CausalLM
from tscompile.models.annotations import ForwardInputs
from tsruntime.artifact.schema import NULL_PAGE, NULL_SLOT


@dataclass(frozen=True)
class Chunk:
    """New tokens of one sequence, the position of the first, and the pages that it owns."""

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]


def batch_inputs(
    chunks: Sequence[Chunk],
    *,
    tokens: int,
    sequences: int,
    page_size: int,
    max_pages: int,
    groups: Iterable[str] = ("full",),
) -> dict[str, Tensor]:
    """Every input that a program may name, padded to a bucket: padding rows come last.

    A chunk's pages have the same numbers in the pools of all cache `groups`.
    """
    flat = [token for chunk in chunks for token in chunk.tokens]
    positions = [chunk.start + i for chunk in chunks for i in range(len(chunk.tokens))]
    slots = [
        chunk.pages[p // page_size] * page_size + p % page_size
        for chunk in chunks
        for p in range(chunk.start, chunk.start + len(chunk.tokens))
    ]
    ends = [0]
    for chunk in chunks:
        ends.append(ends[-1] + len(chunk.tokens))
    tables = [_padded(list(chunk.pages), max_pages, NULL_PAGE) for chunk in chunks]
    tables += [[NULL_PAGE] * max_pages] * (sequences - len(chunks))
    lengths = [chunk.start + len(chunk.tokens) for chunk in chunks]
    lists = {
        "token_ids": _padded(flat, tokens, 0),
        "positions": _padded(positions, tokens, 0),
        "query_starts": _padded(ends, sequences + 1, ends[-1]),
        "seq_lens": _padded(lengths, sequences, 0),
        "logit_rows": _padded([end - 1 for end in ends[1:]], sequences, 0),
    }
    for group in groups:
        lists[f"slot_mapping.{group}"] = _padded(slots, tokens, NULL_SLOT)
    inputs = {name: torch.tensor(values, dtype=torch.int32) for name, values in lists.items()}
    for group in groups:
        inputs[f"block_table.{group}"] = torch.tensor(tables, dtype=torch.int32)
    return inputs


def _padded(values: list[int], size: int, filler: int) -> list[int]:
    return values + [filler] * (size - len(values))


def forward_inputs(inputs: Mapping[str, Tensor], *, select: bool = False) -> ForwardInputs:
    """The same inputs as an eager model takes them; logits of all rows, or of selected ones."""
    return ForwardInputs(
        token_ids=inputs["token_ids"],
        positions=inputs["positions"],
        query_starts=inputs["query_starts"],
        seq_lens=inputs["seq_lens"],
        logit_rows=inputs["logit_rows"] if select else None,
        slot_mapping=_by_group(inputs, "slot_mapping."),
        block_table=_by_group(inputs, "block_table."),
    )


def _by_group(inputs: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    named = inputs.items()
    return {name.removeprefix(prefix): x for name, x in named if name.startswith(prefix)}


def eager_caches(
    model: CausalLM, *, pages: int, page_size: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """One pool a layer, filled with NaN, as memory that no one has written may be."""
    return tuple(
        torch.full(
            (pages, layer.planes, layer.kv_heads, page_size, layer.head_dim), torch.nan, dtype=dtype
        )
        for layer in model.cache_layers
    )


def run_whole(model: CausalLM, tokens: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Logits [tokens, vocab] of one sequence, run eagerly in one chunk with pages of 16."""
    count = -(-len(tokens) // 16)
    chunk = Chunk(tokens, 0, range(1, count + 1))
    inputs = batch_inputs(
        [chunk],
        tokens=len(tokens),
        sequences=1,
        page_size=16,
        max_pages=count,
        groups={layer.group for layer in model.cache_layers},
    )
    caches = eager_caches(model, pages=count + 1, page_size=16, dtype=dtype)
    with torch.no_grad():
        return model(forward_inputs(inputs), caches)


def worst_position(actual: Tensor, expected: Tensor) -> float:
    """The largest, over rows, of max|a - b| / max|b|."""
    error = (actual.double() - expected.double()).abs().amax(dim=-1)
    return float((error / expected.double().abs().amax(dim=-1)).max())
