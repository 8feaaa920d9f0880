"""Which axes may cut the dims of a draft's values: see `View`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import Node
from tscompile.ir.mesh import replicas_of
from tscompile.ir.placement import Shard
from tscompile.rules import Strategy
from tscompile.search.layout import View, dividing_axes, make_view, token_axes
from tskernels.schema import TensorType
from tsruntime.artifact.schema import CacheStorage, Mesh, WeightStorage


@dataclass(frozen=True, slots=True)
class Rows:
    """The token dims of one program: rows of one replica, and how all replicas' may be cut."""

    mesh: Mesh
    draft: DraftProgram

    def view(self, type_: TensorType, inner: Sequence[Sequence[str]] = ()) -> View:
        """A value of global type `type_` whose dims behind the first the axes `inner` may cut."""
        cut = list(inner or ((),) * len(type_.shape))
        rows, beyond = divmod(type_.shape[0], replicas_of(self.mesh))
        if not beyond and rows in (self.draft.tokens, self.draft.sequences):
            cut[0] = token_axes(self.mesh, rows)
        return make_view(self.mesh.axes, type_.shape, cut, type_.dtype.itemsize)


Fitting = Callable[[Node, int], Iterable[Strategy]]
"""The strategies of a node along an axis that its bound operands and annotations allow."""


Cut = tuple[str, int]
"""A dim of a value."""


class Digits:
    """The axes that may cut each inner dim: those that cut a bound operand that it stems from."""

    def __init__(self, mesh: Mesh, draft: DraftProgram, fitting: Fitting) -> None:
        self._mesh, self._draft, self._fitting = mesh, draft, fitting
        self._found: dict[Cut, set[str]] = {}
        for index, axis in enumerate(mesh.axes):
            for cut in self._reached(index):
                self._found.setdefault(cut, set()).add(axis.name)

    def inner(self, name: str, extents: Sequence[int]) -> list[tuple[str, ...]]:
        """For each dim of a value, of `extents` or multiples of them, the axes that divide it."""
        return [
            dividing_axes(self._mesh.axes, sorted(self._found.get((name, dim), ())), extent)
            for dim, extent in enumerate(extents)
        ]

    def _reached(self, axis: int) -> set[Cut]:
        """What an axis may cut: what a strategy cuts beside a bound operand, and what strategies
        cut together with that, however far.
        """
        beside: dict[Cut, list[list[Cut]]] = {}
        reached: list[Cut] = []
        for node in self._draft.nodes:
            seeded = self._seeded(node, axis)
            for strategy in self._fitting(node, axis):
                together = self._cuts(node, strategy)
                if seeded:
                    reached += together
                for cut in together:
                    beside.setdefault(cut, []).append(together)
        known = set(reached)
        while reached:
            for together in beside[reached.pop()]:
                new = [cut for cut in together if cut not in known]
                known.update(new)
                reached += new
        return known

    def _seeded(self, node: Node, axis: int) -> bool:
        operands = (self._draft.values[n] for n in (*node.inputs, *node.outputs) if n is not None)
        return any(_is_cut(value, axis) for value in operands)

    def _cuts(self, node: Node, strategy: Strategy) -> list[Cut]:
        """The inner dims of computed values that a strategy cuts."""
        return [
            (value, placement.dim)
            for value, placement in (
                *zip(node.inputs, strategy.inputs, strict=False),
                *zip(node.outputs, strategy.outputs, strict=True),
            )
            if value is not None
            and isinstance(placement, Shard)
            and placement.dim > 0
            and not self._draft.values[value].is_bound
        ]


def _is_cut(value: DraftValue, axis: int) -> bool:
    bound = isinstance(value.storage, WeightStorage | CacheStorage)
    return bound and isinstance(value.placements[axis], Shard)
