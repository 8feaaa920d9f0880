"""Which axes may cut the dims of a draft's values: see `View`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import Node
from tscompile.ir.mesh import replicas_of
from tscompile.ir.placement import Shard
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


Fitting = Callable[[Node, int], Iterable[Iterable[tuple[int, int]]]]
"""Of each strategy of a node along an axis that its bound operands and annotations allow: the inner
dims that it cuts, of its operands, which are counted inputs first.
"""


Cut = tuple[str, int]
"""A dim of a value."""


class Digits:
    """The axes that may cut each inner dim: those that cut a bound operand that it stems from."""

    def __init__(self, mesh: Mesh, draft: DraftProgram, fitting: Fitting) -> None:
        self._mesh = mesh
        computed = {name for name, value in draft.values.items() if not value.is_bound}
        held = {name: _cutting(value) for name, value in draft.values.items() if _is_held(value)}
        self._nodes: list[tuple[Node, tuple[str | None, ...], frozenset[int]]] = []
        for node in draft.nodes:
            names = (*node.inputs, *node.outputs)
            seeds = frozenset[int]().union(*(held[n] for n in names if n in held))
            placed = tuple([name if name in computed else None for name in names])
            self._nodes.append((node, placed, seeds))
        self._found: dict[Cut, list[str]] = {}
        for index, axis in enumerate(mesh.axes):
            for cut in self._reached(fitting, index):
                self._found.setdefault(cut, []).append(axis.name)

    def reaching(self, name: str, dims: int) -> tuple[tuple[str, ...], ...]:
        """For each dim of a value the axes that may cut it where they divide it."""
        return tuple([tuple(self._found.get((name, dim), ())) for dim in range(dims)])

    def inner(self, name: str, extents: Sequence[int]) -> list[tuple[str, ...]]:
        """For each dim of a value, of `extents` or multiples of them, the axes that divide it."""
        return [
            dividing_axes(self._mesh.axes, self._found.get((name, dim), ()), extent)
            for dim, extent in enumerate(extents)
        ]

    def _reached(self, fitting: Fitting, axis: int) -> set[Cut]:
        """What an axis may cut: what a strategy cuts beside a bound operand, and what strategies
        cut together with that, however far.
        """
        beside: dict[Cut, list[list[Cut]]] = {}
        reached: list[Cut] = []
        for node, names, seeds in self._nodes:
            for cuts in fitting(node, axis):
                together = [(name, dim) for i, dim in cuts if (name := names[i]) is not None]
                if axis in seeds:
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


def _is_held(value: DraftValue) -> bool:
    return isinstance(value.storage, WeightStorage | CacheStorage)


def _cutting(value: DraftValue) -> frozenset[int]:
    """The axes that cut it."""
    return frozenset(i for i, p in enumerate(value.placements) if isinstance(p, Shard))
