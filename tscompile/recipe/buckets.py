"""The recipe's `buckets`: the static shapes that programs are compiled for."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from .section import Count, Default, RefusalError, Section, Vllm

MIN_EXTEND_TOKENS = 16
"""Smallest extend bucket that the default buckets hold, in tokens."""

Shape: TypeAlias = tuple[Count, Count]
"""(tokens, sequences) of an extend program."""


def _ascending_counts(counts: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(counts)) != len(counts):
        raise RefusalError(f"{list(counts)} repeats a bucket", "name each bucket once")
    return tuple(sorted(counts))


def _ascending_shapes(shapes: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if len(set(shapes)) != len(shapes):
        raise RefusalError(
            f"{[list(shape) for shape in shapes]} repeats a bucket", "name each bucket once"
        )
    for tokens, sequences in shapes:
        if sequences > tokens:
            raise RefusalError(
                f"[{tokens}, {sequences}] has more sequences ({sequences}) than tokens ({tokens})",
                "write [tokens, sequences]; each sequence has at least one token",
            )
    return tuple(sorted(shapes))


class Buckets(Section):
    """A step runs the smallest program that holds it; the rest of its rows are padding."""

    decode: Annotated[
        tuple[Count, ...],
        Field(min_length=1),
        AfterValidator(_ascending_counts),
        Default("powers of two up to limits.max_batch"),
        Vllm("--cudagraph-capture-sizes"),
    ]
    """Batch sizes of the decode programs, one token of each sequence."""

    extend: Annotated[
        tuple[Shape, ...],
        Field(min_length=1),
        AfterValidator(_ascending_shapes),
        Default("limits.token_budget and quarters of it, each with limits.max_batch sequences"),
        Vllm("--cudagraph-capture-sizes"),
    ]
    """`[tokens, sequences]` of the extend programs: prefill chunks and decodes mixed."""

    all_logits: Annotated[tuple[Shape, ...], AfterValidator(_ascending_shapes), Vllm("")] = ()
    """`[tokens, sequences]` of extend programs that return the logits of every row, for tests and
    prompt log-probabilities."""


def default_decode(max_batch: int) -> list[int]:
    """Powers of two below `max_batch`, then `max_batch`."""
    sizes = [1 << i for i in range(max_batch.bit_length()) if 1 << i < max_batch]
    return [*sizes, max_batch]


def default_extend(token_budget: int, max_batch: int) -> list[list[int]]:
    """`token_budget` and quarters of it, each with `max_batch` sequences."""
    tokens = [token_budget]
    while tokens[-1] // 4 >= max(MIN_EXTEND_TOKENS, max_batch):
        tokens.append(tokens[-1] // 4)
    return [[size, max_batch] for size in reversed(tokens)]
