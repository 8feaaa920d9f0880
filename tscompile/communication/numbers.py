"""Numbers of programs that are alike, as one text: of their tokens T, their sequences S, or listed.

`4096` where all agree, `2T`, `T/4` or `65536+8T` where they follow the tokens (`S`: the sequences),
else one for each program: `7|9|9`. Reading such a text back gives the numbers, exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_TERM = re.compile(r"(?:(-?\d+)\+)?(-?\d*)([TS])(?:/(\d+))?")


@dataclass(frozen=True, slots=True)
class Bucket:
    """What one of the programs is counted by."""

    tokens: int
    sequences: int


def expression(values: Sequence[int], buckets: Sequence[Bucket]) -> str:
    """The text of one number of each program."""
    if len(set(values)) == 1:
        return str(values[0])
    for letter in "TS":
        text = _linear(values, [_size(bucket, letter) for bucket in buckets], letter)
        if text is not None:
            return text
    return "|".join(map(str, values))


def evaluate(text: str, buckets: Sequence[Bucket]) -> list[int]:
    """The numbers that `text` stands for. Raises ValueError."""
    if "|" in text:
        values = [int(value) for value in text.split("|")]
        if len(values) != len(buckets):
            raise ValueError(f"{text!r} has {len(values)} numbers for {len(buckets)} programs")
        return values
    match = _TERM.fullmatch(text)
    if match is None:
        return [int(text)] * len(buckets)
    base, factor, letter, divisor = match.groups()
    slope = Fraction({"": 1, "-": -1}.get(factor) or int(factor), int(divisor or 1))
    results = [int(base or 0) + slope * _size(bucket, letter) for bucket in buckets]
    if any(result.denominator != 1 for result in results):
        raise ValueError(f"{text!r} is not whole for every program")
    return [int(result) for result in results]


def shape_text(shapes: Sequence[Sequence[int]], buckets: Sequence[Bucket]) -> str:
    """`[T,4096]` of one shape of each program."""
    return f"[{','.join(expression(extents, buckets) for extents in zip(*shapes, strict=True))}]"


def _size(bucket: Bucket, letter: str) -> int:
    return bucket.tokens if letter == "T" else bucket.sequences


def _linear(values: Sequence[int], sizes: Sequence[int], letter: str) -> str | None:
    """`base+slope letter` where that gives every value, with a whole base."""
    other = next((i for i, size in enumerate(sizes) if size != sizes[0]), None)
    if other is None:
        return None
    slope = Fraction(values[other] - values[0], sizes[other] - sizes[0])
    base = values[0] - slope * sizes[0]
    pairs = zip(values, sizes, strict=True)
    if base.denominator != 1 or any(base + slope * size != value for value, size in pairs):
        return None
    factor = {1: "", -1: "-"}.get(slope.numerator, str(slope.numerator))
    divisor = "" if slope.denominator == 1 else f"/{slope.denominator}"
    return f"{f'{base}+' if base else ''}{factor}{letter}{divisor}"
