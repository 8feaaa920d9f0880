"""Looking ops up in the traced program, remembered so that the next layer need not think again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tskernels.schema import AttributeValue
from tsruntime.artifact.proof.column import Body, Column
from tsruntime.artifact.proof.tile import Piece
from tsruntime.artifact.proof.traced import Found, Known, Match, Traced


@dataclass(frozen=True, slots=True)
class _Find:
    """One look-up: its operands and results are places in the list of numbers met so far."""

    key: object
    operands: tuple[int | None, ...]
    windows: object
    kinds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an op's outputs follow from inputs that look alike: look-ups, then bodies."""

    finds: tuple[_Find, ...]
    outputs: tuple[tuple[Body, tuple[int, ...]], ...]

    def replay(self, traced: Traced, numbers: Sequence[int]) -> tuple[Column, ...] | None:
        """The outputs for inputs of other `numbers`; None where a look-up turns out otherwise."""
        met = list(numbers)
        for find in self.finds:
            operands = tuple(None if place is None else met[place] for place in find.operands)
            found = traced.found(find.key, operands, find.windows)
            if found is None or tuple(traced.kinds[n] for n in found) != find.kinds:
                return None
            met += found
        return tuple(
            Column(tuple(met[place] for place in places), body) for body, places in self.outputs
        )


class Lookup:
    """The traced program as one op's semantics see it; records what they look up.

    Attributes are told apart by identity: they must outlive the look-ups.
    """

    def __init__(self, traced: Traced, numbers: Sequence[int]) -> None:
        self._traced = traced
        self._met = list(numbers)
        self._finds: dict[object, _Find] = {}
        self._whole: dict[object, tuple[int, ...]] = {}

    def __getitem__(self, number: int) -> Known:
        return self._traced[number]

    def find(
        self, op: str, attributes: Mapping[str, AttributeValue], *inputs: Piece | None
    ) -> Match:
        """The traced op of this kind and these inputs. Refusal where there is none."""
        call = (op, id(attributes), *(p and p.number for p in inputs))
        if call in self._whole:
            return Match(self._whole[call], tuple(p.tile if p else () for p in inputs))
        found: Found = self._traced.find(op, attributes, *inputs)
        operands = tuple(None if p is None else self._place(p.number) for p in inputs)
        identity = (found.key, operands, found.windows)
        if identity not in self._finds:
            kinds = tuple(self._traced.kinds[n] for n in found.match.outputs)
            self._finds[identity] = _Find(found.key, operands, found.windows, kinds)
            self._met += found.match.outputs
        if not any(found.windows):
            self._whole[call] = found.match.outputs
        return found.match

    def recipe(self, outputs: Sequence[Column]) -> Recipe:
        """What was looked up, and how `outputs` are made of it."""
        places = [tuple(self._place(n) for n in column.numbers) for column in outputs]
        bodies = [column.body for column in outputs]
        return Recipe(tuple(self._finds.values()), tuple(zip(bodies, places, strict=True)))

    def _place(self, number: int) -> int:
        return self._met.index(number)
