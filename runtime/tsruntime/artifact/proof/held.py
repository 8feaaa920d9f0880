"""How much of a value's sums a rank holds: nothing, everything, or some of the summands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from tsruntime.artifact.proof.runs import Overlap, Runs, clipped, shown, union, whole


class Extent(Enum):
    """None of a value's summands (the local tensor is zero), or each exactly once."""

    NOTHING = "nothing"
    EVERYTHING = "everything"


NOTHING: Final = Extent.NOTHING
EVERYTHING: Final = Extent.EVERYTHING


@dataclass(frozen=True, slots=True)
class Summed:
    """Of `left + right`: some of each."""

    left: Held
    right: Held


@dataclass(frozen=True, slots=True)
class Contracted:
    """Of a sum over indices 0 to size - 1: for each pair, these indices of that part of the terms.

    The parts differ from pair to pair, and so do the indices; no summand is in two pairs.
    """

    size: int
    pairs: tuple[tuple[Held, Runs], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """Rows that some of these experts want: other rows, and other choices, are blank."""

    experts: Runs


Held: TypeAlias = Extent | Summed | Contracted | Sent


def summed(left: Held, right: Held) -> Held:
    """What is held of a + b where that much is held of a and of b."""
    if left == right and isinstance(left, Extent):
        return left
    return Summed(left, right)


def contracted(part: Held, runs: Runs, size: int) -> Held:
    """What is held of the sum of f(i) over i < size, of terms held as `part`, over `runs` only.

    Indices beyond `size` are padding, whose terms are zero. Overlap if an index occurs twice.
    """
    kept = clipped(union([runs]), size)
    if part is NOTHING or not kept:
        return NOTHING
    return _contracted(size, [(part, kept)])


def joined(parts: Sequence[Held]) -> Held:
    """What the sum of the ranks' tensors holds; Overlap if some summand is in two of them."""
    some = [part for part in parts if part is not NOTHING]
    if len(some) <= 1:
        return some[0] if some else NOTHING
    if any(part is EVERYTHING for part in some):
        raise Overlap("one rank holds the whole value and another one holds some of it too")
    if all(isinstance(part, Summed) for part in some):
        sums = [part for part in some if isinstance(part, Summed)]
        return summed(joined([s.left for s in sums]), joined([s.right for s in sums]))
    contractions = [part for part in some if isinstance(part, Contracted)]
    if len(contractions) != len(some):
        raise Overlap("the ranks hold sums of different kinds")
    return _contracted(contractions[0].size, [p for c in contractions for p in c.pairs])


def _contracted(size: int, pairs: Sequence[tuple[Held, Runs]]) -> Held:
    """Merge pairs of equal parts and of equal indices, and see that the rest is disjoint."""
    merged = list(pairs)
    while len(again := _merged_once(merged)) < len(merged):
        merged = again
    for index, (part, runs) in enumerate(again):
        for other, others in again[:index]:
            if _meet(runs, others):
                joined([part, other])
    if again == [(EVERYTHING, whole(size))]:
        return EVERYTHING
    return Contracted(size, tuple(sorted(again, key=lambda pair: pair[1])))


def _merged_once(pairs: Sequence[tuple[Held, Runs]]) -> list[tuple[Held, Runs]]:
    by_part: dict[Held, list[Runs]] = {}
    for part, runs in pairs:
        by_part.setdefault(part, []).append(runs)
    by_runs: dict[Runs, list[Held]] = {}
    for part, sets in by_part.items():
        by_runs.setdefault(union(sets), []).append(part)
    return [(joined(parts), runs) for runs, parts in by_runs.items()]


def _meet(a: Runs, b: Runs) -> bool:
    return any(s < t2 and s2 < t for s, t in a for s2, t2 in b)


def described(held: Held) -> str:
    """For messages: `everything`, `the summands [0,4) of 8`."""
    match held:
        case Extent():
            return held.value
        case Summed(left, right):
            return f"({described(left)} plus {described(right)})"
        case Contracted(size, pairs):
            return _listed(size, pairs)
        case Sent(experts):
            return f"what the experts {shown(experts)} want"


def _listed(size: int, pairs: Iterable[tuple[Held, Runs]]) -> str:
    texts = [
        f"the summands {shown(runs)} of {size}"
        + ("" if part is EVERYTHING else f" of {described(part)}")
        for part, runs in pairs
    ]
    return " and ".join(texts)
