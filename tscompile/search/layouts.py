"""The layouts that a deployment's free weights may have: one for all programs, chosen over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tscompile.cost.model import Price
from tscompile.ir.draft import Draft, DraftProgram
from tscompile.ir.placement import Placements, local_shape
from tsruntime.artifact.schema import Phase, WeightStorage

STEPS: Mapping[Phase, int] = {Phase.DECODE: 8, Phase.EXTEND: 1}
"""How often a program of a phase is assumed to run: eight decode steps for one that prefills."""


def layouts(draft: Draft) -> Iterator[Draft]:
    """The draft under every combination of its weights' layouts, its own first."""
    free = [weight for weight in draft.weights.values() if len(weight.layouts) > 1]
    for chosen in product(*(weight.layouts for weight in free)):
        placed = {weight.name: p for weight, p in zip(free, chosen, strict=True)}
        yield _laid_out(draft, placed) if placed else draft


def weighed(draft: Draft, prices: Sequence[Price]) -> int:
    """Picoseconds of all programs together, each as often as its phase is assumed to run."""
    return sum(
        STEPS[program.phase] * price.picoseconds
        for program, price in zip(draft.programs, prices, strict=True)
    )


def weight_bytes(draft: Draft) -> int:
    """Bytes of all weights on one rank, of a draft whose types are global."""
    return sum(
        weight.type.dtype.itemsize * prod(local_shape(draft.mesh, weight.type.shape, w))
        for weight in draft.weights.values()
        for w in (weight.placements,)
    )


def _laid_out(draft: Draft, placed: Mapping[str, Placements]) -> Draft:
    weights = {
        name: replace(weight, placements=placed.get(name, weight.placements))
        for name, weight in draft.weights.items()
    }
    programs = tuple(_with(program, placed) for program in draft.programs)
    return replace(draft, weights=weights, programs=programs)


def _with(program: DraftProgram, placed: Mapping[str, Placements]) -> DraftProgram:
    values = dict(program.values)
    for name, value in program.values.items():
        if isinstance(value.storage, WeightStorage) and value.storage.weight in placed:
            values[name] = replace(value, placements=placed[value.storage.weight])
    return replace(program, values=values)
