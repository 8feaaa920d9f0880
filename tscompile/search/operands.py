"""Where the operands of a draft's nodes come from, and which nodes the search need not see.

Views that only regroup columns into heads cost nothing and may be cut just as what they view: their
readers read the viewed value, the *root*. What derives from program inputs and constants alone (the
rotary table) is made once a program, on every rank, and then is as free as an input.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tscompile.ir.draft import DraftProgram, DraftValue
from tscompile.ir.graph import Node
from tscompile.ir.placement import by_replica
from tsruntime.artifact.schema import CacheStorage, InputStorage, Mesh, WeightStorage

Kind: TypeAlias = Literal["free", "weight", "cache", "value"]
"""An input or what derives from inputs; a weight; a layer's pages; what the search places."""

_REGROUPING = frozenset({"unflatten", "flatten"})


@dataclass(frozen=True, slots=True)
class Slot:
    """An operand by name; `root` is the value that it views, itself where it is no view."""

    name: str
    kind: Kind
    value: DraftValue
    root: str


class Operands:
    """The operands of one program; `constants` are the weights that the config alone gives.

    `first` are the nodes that derive values from inputs, in order; `views` what regroups columns,
    by the name of its output.
    """

    def __init__(self, mesh: Mesh, draft: DraftProgram, constants: Collection[str]) -> None:
        self._draft = draft
        self._derived: set[str] = set()
        self.first: list[Node] = []
        self.views: dict[str, Node] = {}
        free = {n for n, v in draft.values.items() if isinstance(v.storage, InputStorage)}
        free |= {n for n in draft.values if n in constants}
        for node in draft.nodes:
            if all(name is None or name in free for name in node.inputs):
                self._derived.update(node.outputs)
                self.first.append(node)
                free.update(node.outputs)
            elif node.op in _REGROUPING:
                self.views.update(dict.fromkeys(node.outputs, node))
        own = by_replica(mesh)
        self._placed = {n: replace(draft.values[n], placements=own) for n in self._derived}
        self._slots = {name: self._slot(name) for name in draft.values}

    def laid_out(self, draft: DraftProgram) -> Operands:
        """The same operands where the weights of `draft` lie otherwise."""
        other = copy(self)
        other._draft = draft
        other._slots = {
            name: self._slots[name] if value is self._draft.values[name] else other._slot(name)
            for name, value in draft.values.items()
        }
        return other

    def searched(self, node: Node) -> bool:
        """Whether the search chooses a strategy for the node."""
        return not any(name in self._derived or name in self.views for name in node.outputs)

    def slot(self, name: str) -> Slot:
        """The operand of that name."""
        return self._slots[name]

    def slots(self, node: Node) -> list[Slot | None]:
        """A node's inputs; None for an absent one."""
        return [None if name is None else self._slots[name] for name in node.inputs]

    def _slot(self, name: str) -> Slot:
        value = self._draft.values[name]
        if name in self._derived:
            return Slot(name, "free", self._placed[name], name)
        match value.storage:
            case WeightStorage():
                return Slot(name, "weight", value, name)
            case CacheStorage():
                return Slot(name, "cache", value, name)
            case InputStorage():
                return Slot(name, "free", value, name)
            case _:
                return Slot(name, "value", value, self._root(name))

    def _root(self, name: str) -> str:
        while name in self.views:
            source = self.views[name].inputs[0]
            assert source is not None
            name = source
        return name
