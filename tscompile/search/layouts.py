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


def layouts(draft: Draft) -> Iterator[Mapping[str, Placements]]:
    """Every combination of the layouts of the draft's free weights, its own first."""
    free = [weight for weight in draft.weights.values() if len(weight.layouts) > 1]
    for chosen in product(*(weight.layouts for weight in free)):
        yield {weight.name: placed for weight, placed in zip(free, chosen, strict=True)}


def weighed(draft: Draft, prices: Sequence[Price]) -> int:
    """Picoseconds of all programs together, each as often as its phase is assumed to run."""
    return sum(
        STEPS[program.phase] * price.picoseconds
        for program, price in zip(draft.programs, prices, strict=True)
    )


def weight_bytes(draft: Draft, placed: Mapping[str, Placements]) -> int:
    """Bytes of all weights on one rank, of a draft whose types are global, laid out as `placed`."""
    return sum(
        draft.copies(name)
        * weight.type.dtype.itemsize
        * prod(local_shape(draft.mesh, weight.type.shape, placed.get(name, weight.placements)))
        for name, weight in draft.weights.items()
    )


def laid_out(draft: Draft, placed: Mapping[str, Placements]) -> Draft:
    """The draft's weights as `placed`; its programs' are not touched."""
    weights = {
        name: replace(weight, placements=placed.get(name, weight.placements))
        for name, weight in draft.weights.items()
    }
    return replace(draft, weights=weights)


def program_laid_out(program: DraftProgram, placed: Mapping[str, Placements]) -> DraftProgram:
    """The program with its weights as `placed`."""
    values = dict(program.values)
    for name, value in program.values.items():
        if isinstance(value.storage, WeightStorage) and value.storage.weight in placed:
            values[name] = replace(value, placements=placed[value.storage.weight])
    return replace(program, values=values)
