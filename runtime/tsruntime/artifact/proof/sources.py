"""What a rank holds before a program runs: its weights' shards, its inputs, its pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.column import Bodies, Column
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.proof.held import EVERYTHING
from tsruntime.artifact.proof.runs import Runs, whole
from tsruntime.artifact.proof.tile import Piece, local
from tsruntime.artifact.proof.traced import Traced
from tsruntime.artifact.schema import (
    CacheGroup,
    CacheStorage,
    InputStorage,
    Mesh,
    Plan,
    Program,
    Value,
    Weight,
    WeightPart,
    WeightStorage,
    part_axes,
)

REPLICAS = "ATTN_DP"
"""The group along which each coordinate has its own rows and pages."""


def replica_axes(mesh: Mesh) -> tuple[str, ...]:
    """Axes of the attention replicas; empty where there is one."""
    return tuple(mesh.groups.get(REPLICAS, ()))


class Sources:
    """Columns of everything that comes from outside, for the programs of one plan."""

    def __init__(self, plan: Plan, certificate: Certificate, bodies: Bodies) -> None:
        self._plan, self._bodies = plan, bodies
        self._weights = {weight.name: weight for weight in plan.weights}
        self._parameters = {p.name: p for p in certificate.parameters}
        self._constants = {c.name: c for c in certificate.constants}
        self._caches = {(c.group, c.layer): c for c in certificate.caches}
        self._known: dict[object, Column] = {}

    def values(self, traced: Traced, program: Program, ranks: Sequence[int]) -> dict[str, Column]:
        """What each value that no op produces holds on `ranks`."""
        produced = {name for op in program.ops for name in op.outputs}
        return {
            value.name: found
            for value in program.values
            if value.name not in produced
            and (found := self._value(traced, value, ranks)) is not None
        }

    def cache(self, traced: Traced, group: str, number: int, ranks: Sequence[int]) -> Column:
        """One layer's pool in `group`, as the traced value `number`."""
        found = next(g for g in self._plan.kv_cache.groups if g.name == group)
        return self._column(
            (found, traced.kinds[number], ranks),
            (number,),
            lambda rank: (self._pages(found, number, rank),),
            ranks,
        )

    def _column(
        self,
        key: object,
        numbers: tuple[int, ...],
        make: Callable[[int], tuple[Piece, ...]],
        ranks: Sequence[int],
    ) -> Column:
        """The pieces that `make` gives each rank; the same body for what has the same key."""
        if key not in self._known:
            self._known[key] = self._bodies.column([local(0, make(rank)) for rank in ranks])
        return Column(numbers, self._known[key].body)

    def _pages(self, group: CacheGroup, number: int, rank: int) -> Piece:
        cache, mesh = self._plan.kv_cache, self._plan.mesh
        page = cache.pages * mesh.coordinate(rank, replica_axes(mesh))
        head = group.kv_heads * mesh.coordinate(rank, group.axes)
        tile = (
            ((page, page + cache.pages),),
            whole(group.planes),
            ((head, head + group.kv_heads),),
            whole(cache.page_size),
            whole(group.head_dim),
        )
        return Piece(number, tile, EVERYTHING)

    def _value(self, traced: Traced, value: Value, ranks: Sequence[int]) -> Column | None:
        match value.storage:
            case WeightStorage(weight=name):
                return self._weight(traced, self._weights[name], ranks)
            case InputStorage(input=name):
                return self._input(traced, name, ranks)
            case CacheStorage(group=group, layer=layer):
                cache = self._caches.get((group, layer))
                if cache is None:
                    raise PlanUnproven(
                        value.name, f"the traced program has no cache {group} {layer}"
                    )
                return self.cache(traced, group, traced.number(cache.name), ranks)
            case _:
                return None

    def _input(self, traced: Traced, name: str, ranks: Sequence[int]) -> Column:
        """Each replica's own, whole."""
        if name not in traced.references:
            raise PlanUnproven(name, "the traced program has no such input")
        number, mesh = traced.number(name), self._plan.mesh
        rows, *others = traced[number].type.shape

        def make(rank: int) -> tuple[Piece, ...]:
            start = rows * mesh.coordinate(rank, replica_axes(mesh))
            tile = (((start, start + rows),), *(whole(size) for size in others))
            return (Piece(number, tile, EVERYTHING),)

        return self._column(("input", rows, *others, ranks), (number,), make, ranks)

    def _weight(self, traced: Traced, weight: Weight, ranks: Sequence[int]) -> Column:
        """The parts one after another along dim 0, as the file of each rank holds them."""
        if weight.constant is not None:
            return self._constant(traced, weight, ranks)
        self._check_parts(weight)
        tensors = [traced.number(part.tensor) for part in weight.parts]
        numbers = tuple(dict.fromkeys(tensors))
        cuts = tuple((p.shape, p.dim, p.axes, p.padded, p.stack) for p in weight.parts)
        pattern = tuple(numbers.index(number) for number in tensors)
        return self._column(
            (cuts, pattern, ranks),
            numbers,
            lambda rank: tuple(
                Piece(n, self._tile(p, rank), EVERYTHING)
                for n, p in zip(tensors, weight.parts, strict=True)
            ),
            ranks,
        )

    def _constant(self, traced: Traced, weight: Weight, ranks: Sequence[int]) -> Column:
        known = self._constants.get(weight.name)
        if known is None or known.values != weight.constant or weight.axes or weight.parts:
            raise PlanUnproven(weight.name, "it is no constant of the traced program")
        number, tile = traced.number(weight.name), (whole(len(known.values)),)
        pieces = (Piece(number, tile, EVERYTHING),)
        return self._column(("constant", tile, ranks), (number,), lambda rank: pieces, ranks)

    def _check_parts(self, weight: Weight) -> None:
        for part in weight.parts:
            known, shape = self._parameters.get(part.tensor), _whole_shape(part)
            if known is None or known.shape != shape:
                raise PlanUnproven(
                    weight.name,
                    f"it is cut from {part.tensor} {shape}, the traced program has "
                    f"{'no such weight' if known is None else known.shape}",
                )
            axes = part_axes(part)
            if not set(axes) <= set(weight.axes) or len(set(axes)) < len(axes):
                raise PlanUnproven(
                    weight.name,
                    f"it is cut over {axes}, but stored once per coordinate of {weight.axes}",
                )
            self._check_stack(weight, part)
            if part.dim is None and (part.axes or part.padded is not None):
                raise PlanUnproven(weight.name, f"{part.tensor} is cut along no dim")
            if part.dim is not None:
                self._check_division(weight, part, part.dim)

    def _check_stack(self, weight: Weight, part: WeightPart) -> None:
        if part.stack is None:
            return
        ranks = self._plan.mesh.size(part.stack.axes)
        if part.stack.count % ranks or len(weight.parts) > 1:
            raise PlanUnproven(
                weight.name,
                f"{part.stack.count} tensors {part.tensor} do not divide over {ranks} ranks, "
                "or stand beside others",
            )

    def _check_division(self, weight: Weight, part: WeightPart, dim: int) -> None:
        ranks = self._plan.mesh.size(part.axes)
        padded = part.padded or part.shape[dim]
        if padded % ranks or padded < part.shape[dim]:
            raise PlanUnproven(
                weight.name,
                f"{part.shape[dim]} (padded: {padded}) of {part.tensor}'s dim {dim} do not "
                f"divide over {ranks} ranks",
            )

    def _tile(self, part: WeightPart, rank: int) -> tuple[Runs, ...]:
        tile = [whole(size) for size in part.shape]
        if part.dim is not None:
            mesh = self._plan.mesh
            size = (part.padded or part.shape[part.dim]) // mesh.size(part.axes)
            start = size * mesh.coordinate(rank, part.axes)
            tile[part.dim] = ((start, start + size),)
        if part.stack is not None:
            mesh = self._plan.mesh
            held = part.stack.count // mesh.size(part.stack.axes)
            first = held * mesh.coordinate(rank, part.stack.axes)
            tile.insert(0, ((first, first + held),))
        return tuple(tile)


def _whole_shape(part: WeightPart) -> tuple[int, ...]:
    """Of all its tensors together."""
    return part.shape if part.stack is None else (part.stack.count, *part.shape)
