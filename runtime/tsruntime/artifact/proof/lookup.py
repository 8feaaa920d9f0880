"""Looking ops up in the traced program, remembered so that the next layer need not think again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tskernels.schema import AttributeValue
from tsruntime.artifact.proof.column import Body, Column
from tsruntime.artifact.proof.errors import Refusal
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
    """How an op's outputs follow from inputs that look alike: look-ups, then bodies.

    `experts` are (what experts gave, their ids, how many): places of numbers, and a count.
    """

    finds: tuple[_Find, ...]
    outputs: tuple[tuple[Body, tuple[int, ...]], ...]
    experts: tuple[tuple[int, int, int], ...] = ()

    def replay(self, traced: Traced, numbers: Sequence[int]) -> tuple[Column, ...] | None:
        """The outputs for inputs of other `numbers`; None where a look-up turns out otherwise."""
        met = list(numbers)
        for find in self.finds:
            operands = tuple(None if place is None else met[place] for place in find.operands)
            found = traced.found(find.key, operands, find.windows)
            if found is None or tuple(traced.kinds[n] for n in found) != find.kinds:
                return None
            met += found
        for given, ids, count in self.experts:
            if traced.experts_of(met[given]) != (met[ids], count):
                return None
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
        self._experts: dict[tuple[int, int, int], None] = {}

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

    def experts(self, given: Piece, ids: Piece) -> int:
        """How many experts gave the value `given` by the choices `ids`. Refusal if none did."""
        found = self._traced.experts_of(given.number)
        if found is None or found[0] != ids.number:
            names = f"{self._traced[given.number].name} and {self._traced[ids.number].name}"
            raise Refusal(f"{names} are not what experts gave and their ids")
        place = (self._place(given.number), self._place(ids.number), found[1])
        self._experts[place] = None
        return found[1]

    def recipe(self, outputs: Sequence[Column]) -> Recipe:
        """What was looked up, and how `outputs` are made of it."""
        places = [tuple(self._place(n) for n in column.numbers) for column in outputs]
        bodies = [column.body for column in outputs]
        outputs_ = tuple(zip(bodies, places, strict=True))
        return Recipe(tuple(self._finds.values()), outputs_, tuple(self._experts))

    def _place(self, number: int) -> int:
        return self._met.index(number)
