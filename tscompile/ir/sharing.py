"""Equal types and placements as one object each, so that who compares them can do so by identity.

What comes from other processes, or is made for each value anew, is equal but not the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Generic, TypeVar

from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.placement import Placements
from tskernels.schema import TensorType

H = TypeVar("H", bound=Hashable)


class Once(Generic[H]):
    """The first of all equal objects; those that come again are known without being compared."""

    def __init__(self) -> None:
        self._first: dict[H, H] = {}
        self._known: dict[int, tuple[H, H]] = {}

    def __call__(self, item: H) -> H:
        """The one that stands for `item`, which is kept, so that its identity stays its own."""
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = item, self._first.setdefault(item, item)
        return known[1]


def shared(draft: Draft) -> Draft:
    """The draft whose values of equal type and placements have the same ones."""
    types, placements = Once[TensorType](), Once[Placements]()

    def value(one: DraftValue) -> DraftValue:
        type_, placed = types(one.type), placements(one.placements)
        if type_ is one.type and placed is one.placements:
            return one
        return DraftValue(one.name, type_, placed, one.storage)

    def program(one: DraftProgram) -> DraftProgram:
        return replace(one, values={name: value(v) for name, v in one.values.items()})

    return replace(draft, programs=tuple(program(one) for one in draft.programs))
