"""The smallest sizes that divide as a plan's own do, for every class of dims."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tscompile.simulate.errors import CannotShrink
from tscompile.simulate.relations.base import PAGE_SIZE, PAGES, SEQUENCES, TOKENS, Dim, Dims, Scope
from tskernels.schema import DType
from tsruntime.artifact.proof.runs import Runs, length
from tsruntime.artifact.proof.tile import Local

_LEAST = 4
"""Sizes are not shrunk below this, lest different values look alike."""

_ROWS = (TOKENS, SEQUENCES)
_POOL = (PAGES, PAGE_SIZE)


@dataclass(frozen=True, slots=True)
class Scale:
    """A size is made of blocks of `unit`; each shrinks to `small`. Cuts fall between blocks."""

    unit: int
    small: int

    def of(self, size: int) -> int:
        """The small size (or cut) for a large one; the end before padding may cut a block."""
        return size * self.small // self.unit


@dataclass
class Cuts:
    """Sizes of every class, and where the tiles of all ranks in all programs begin and end."""

    dims: Dims
    sizes: dict[Dim, int] = field(default_factory=dict[Dim, int])
    ends: dict[Dim, set[int]] = field(default_factory=dict[Dim, set[int]])

    def unit(self, dim: Dim) -> int:
        """The greatest block that no tile cuts. Where there is padding, the end before it may."""
        size, ends = self.sizes[dim], self.ends.get(dim, set())
        padded = max(ends, default=0) > size
        return math.gcd(*(end for end in ends if not (padded and end == size))) or size

    def read_sizes(self, scope: Scope) -> None:
        """The size of each class in one graph; CannotShrink where two differ."""
        self.sizes.update(self.dims.unnamed)
        for known in scope.traced.known:
            if known.type.dtype is DType.INT32:  # a program's input, sized by rows alone
                continue
            for dim, size in enumerate(known.type.shape):
                found = self.dims.find(scope(known.name, dim))
                if found in map(self.dims.find, (*_ROWS, *_POOL)):
                    continue
                if self.sizes.setdefault(found, size) != size:
                    raise CannotShrink(
                        f"{known.name} has {size} entries where others have {self.sizes[found]}",
                        remedy="simulate without --shrink",
                    )

    def add(self, scope: Scope, tiles: Iterable[Mapping[str, Local]], rows: dict[Dim, int]) -> None:
        """Every end of every run of one program's values; `rows` gets the row classes' units."""
        seen: set[object] = set()
        for values in tiles:
            for value in values.values():
                for piece in value.pieces:
                    for dim, runs in enumerate(piece.tile):
                        if (piece.number, dim, runs) not in seen:
                            seen.add((piece.number, dim, runs))
                            self._add(scope, piece.number, dim, runs, rows)

    def _add(self, scope: Scope, number: int, dim: int, runs: Runs, rows: dict[Dim, int]) -> None:
        known = scope.traced[number]
        size, found = known.type.shape[dim], self.dims.find(scope(known.name, dim))
        ends = {end for run in runs for end in run}
        if known.spread and dim == 0:  # counted in their own replica
            if found in map(self.dims.find, _ROWS):
                rows[found] = math.gcd(rows.get(found, 0), *(end % size for end in ends))
            return
        if found in self.dims.products:
            heads, width = self.dims.products[found]
            columns = self.sizes[width]
            if any(end % columns for end in ends):
                raise CannotShrink(
                    f"a cut of {known.name} falls into a head of {columns}",
                    remedy="simulate without --shrink",
                    where=known.name,
                )
            found, ends = heads, {end // columns for end in ends}
        self.ends.setdefault(found, set()).update(ends)


def scales(cuts: Cuts) -> dict[Dim, Scale]:
    """How each class shrinks that is neither a product nor a half nor counts rows or pages."""
    dims, found = cuts.dims, dict[Dim, Scale]()
    even = {width for _, width in dims.products.values()} | set(dims.halves.values())
    heads = {head for pair in dims.groups for head in pair}
    for dim, size in cuts.sizes.items():
        if dim not in dims.products and dim not in dims.halves:
            least = 1 if dim in heads else min(_LEAST, size)
            least = size if dim in dims.kept else least
            found[dim] = scale_for(cuts.unit(dim), size, least, even=dim in even)
    for link in dims.links:
        found.update(_linked(cuts, sorted(link - dims.products.keys()), found, even))
    for query, key in dims.groups:
        small = found[key].of(cuts.sizes[key])
        found[query] = _grouped(found[query], cuts.sizes[query], small)
    return found


def _linked(
    cuts: Cuts, dims: Sequence[Dim], alone: Mapping[Dim, Scale], even: Collection[Dim]
) -> dict[Dim, Scale]:
    """One scale for dims that are sums of one another: all of them leave enough entries."""
    known = [dim for dim in dims if dim in alone]
    unit = math.gcd(*(cuts.unit(dim) for dim in known))
    each = [
        scale_for(unit, cuts.sizes[dim], min(_LEAST, cuts.sizes[dim]), even=dim in even)
        for dim in known
    ]
    small = next(
        n
        for n in range(max(scale.small for scale in each), unit + 1)
        if n == unit or not any(n * cuts.sizes[dim] // unit % 2 for dim in known if dim in even)
    )
    return dict.fromkeys(dims, Scale(unit, small))


def scale_for(unit: int, size: int, least: int, *, even: bool = False) -> Scale:
    """The fewest entries a block that leave at least `least` (and an even number, if asked)."""
    for small in range(1, unit):
        whole = small * size // unit
        if whole >= least and not (even and whole % 2):
            return Scale(unit, small)
    return Scale(unit, unit)


def _grouped(query: Scale, queries: int, keys: int) -> Scale:
    """More query heads a block, until as many belong to each of the key heads."""
    for small in range(query.small, query.unit):
        if Scale(query.unit, small).of(queries) % keys == 0:
            return Scale(query.unit, small)
    return Scale(query.unit, query.unit)


@dataclass(frozen=True, slots=True)
class SmallSizes:
    """The sizes of one small program: every class's scale, its rows, the pool's pages."""

    dims: Dims
    sizes: Mapping[Dim, int]
    scales: Mapping[Dim, Scale]
    fixed: Mapping[Dim, int]
    """Small sizes that are not scaled: pages, page size."""

    def whole(self, dim: Dim, size: int) -> int:
        """Small size (or cut) of a dim whose large one is `size`."""
        found = self.dims.find(dim)
        if found in self.fixed:
            return self.fixed[found]
        if found in self.dims.halves:
            return self.whole(self.dims.halves[found], 2 * size) // 2
        if found in self.dims.products:
            heads, width = self.dims.products[found]
            columns = self.sizes[width]
            return self.scales[heads].of(size // columns) * self.scales[width].of(columns)
        return self.scales[found].of(size) if found in self.scales else size

    def local(self, scope: Scope, number: int, dim: int, runs: Runs) -> int:
        """Small local length of the runs that a rank holds."""
        known = scope.traced[number]
        key, size = scope(known.name, dim), known.type.shape[dim]
        if self.dims.find(key) in self.fixed:
            return self.fixed[self.dims.find(key)]
        if not (known.spread and dim == 0):
            return length(tuple((self.whole(key, a), self.whole(key, b)) for a, b in runs))
        small = self.whole(key, size)
        place = [[end // size * small + self.whole(key, end % size) for end in run] for run in runs]
        return sum(stop - start for start, stop in place)

    def shape(self, scope: Scope, value: Local) -> tuple[int, ...]:
        """Small local shape of a value."""
        pieces = value.pieces
        return tuple(
            sum(self.local(scope, p.number, dim, p.tile[dim]) for p in pieces)
            if dim == value.dim
            else self.local(scope, pieces[0].number, dim, runs)
            for dim, runs in enumerate(pieces[0].tile)
        )


def row_scales(
    dims: Dims, units: Mapping[Dim, int], sizes: Sequence[int], *, decode: bool
) -> dict[Dim, Scale]:
    """How tokens and sequences of one program shrink; in a decode program they are one."""
    tokens, sequences = sizes
    t, s = dims.find(TOKENS), dims.find(SEQUENCES)
    if decode:
        unit = math.gcd(units.get(t, 0), units.get(s, 0)) or tokens
        one = scale_for(unit, tokens, min(_LEAST, tokens))
        return {t: one, s: one}
    return {
        t: scale_for(units.get(t, 0) or tokens, tokens, min(2 * _LEAST, tokens)),
        s: scale_for(units.get(s, 0) or sequences, sequences, min(_LEAST - 1, sequences)),
    }
