"""Dims, classes of dims of one size, and what the relations share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tsruntime.artifact.proof.certificate import Rows, TracedOp
from tsruntime.artifact.proof.traced import Traced

Dim: TypeAlias = tuple[str, str, int]
"""Graph (empty for weights, constants and caches), value name, dim."""

TOKENS: Final[Dim] = ("", "tokens", 0)
SEQUENCES: Final[Dim] = ("", "sequences", 0)
PAGES: Final[Dim] = ("", "pages", 0)
PAGE_SIZE: Final[Dim] = ("", "page size", 0)
"""Sizes that differ between programs, or that the KV cache alone has."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of one graph: `shared` ones are weights, constants and caches."""

    rows: Rows
    shared: frozenset[str]
    traced: Traced

    def __call__(self, name: str, dim: int) -> Dim:
        """The key of a dim of a value."""
        return ("" if name in self.shared else self.rows, name, dim % self.rank(name))

    def rank(self, name: str) -> int:
        """Dims of a value."""
        return len(self.traced[self.traced.number(name)].type.shape)

    def size(self, name: str, dim: int) -> int:
        """Size of a dim of a value that is no part of another."""
        return self.traced[self.traced.number(name)].type.shape[dim]


@dataclass
class Dims:
    """Classes of dims of equal size, and how some sizes follow from others.

    `products` maps a dim to the two whose product it is, `halves` to the one that it is half of,
    `groups` holds (query heads, key heads): the first is a multiple of the second. `kept` dims do
    not shrink.
    `links` holds dims of which some are sums of others: they shrink block by block alike.
    `unnamed` has the sizes of dims that no value has.
    """

    products: dict[Dim, tuple[Dim, Dim]] = field(default_factory=dict[Dim, "tuple[Dim, Dim]"])
    halves: dict[Dim, Dim] = field(default_factory=dict[Dim, Dim])
    groups: list[tuple[Dim, Dim]] = field(default_factory=list["tuple[Dim, Dim]"])
    links: list[frozenset[Dim]] = field(default_factory=list[frozenset[Dim]])
    unnamed: dict[Dim, int] = field(default_factory=dict[Dim, int])
    kept: set[Dim] = field(default_factory=set["Dim"])
    _parents: dict[Dim, Dim] = field(default_factory=dict[Dim, Dim])

    def find(self, dim: Dim) -> Dim:
        """The dim that stands for the class of `dim`."""
        while (parent := self._parents.get(dim, dim)) != dim:
            dim = parent
        return dim

    def same(self, *dims: Dim) -> None:
        """Make the classes of `dims` one."""
        first, *others = map(self.find, dims)
        for other in others:
            if self.find(other) != first:
                self._parents[self.find(other)] = first

    def link(self, *dims: Dim) -> None:
        """Let the classes of `dims` shrink by equal blocks."""
        self.links.append(frozenset(dims))

    def settle(self) -> None:
        """Factors of equal products are equal; name everything by its class."""
        again = True
        while again:
            again = False
            by_class: dict[Dim, tuple[Dim, Dim]] = {}
            for dim, (a, b) in self.products.items():
                c, d = by_class.setdefault(self.find(dim), (a, b))
                if (self.find(a), self.find(b)) != (self.find(c), self.find(d)):
                    self.same(a, c)
                    self.same(b, d)
                    again = True
        find = self.find
        self.products = {find(p): (find(a), find(b)) for p, (a, b) in self.products.items()}
        self.halves = {find(h): find(d) for h, d in self.halves.items()}
        self.kept = {find(dim) for dim in self.kept}
        self.groups = sorted({(find(q), find(k)) for q, k in self.groups})
        self.unnamed = {find(dim): size for dim, size in self.unnamed.items()}
        self.links = _joined(frozenset(map(find, link)) for link in self.links)


def _joined(links: Iterable[frozenset[Dim]]) -> list[frozenset[Dim]]:
    """The links, those that share a dim made one."""
    apart: list[frozenset[Dim]] = []
    for link in links:
        meeting = [other for other in apart if other & link]
        apart = [other for other in apart if not other & link]
        apart.append(link.union(*meeting))
    return apart


Relation: TypeAlias = Callable[[Dims, Scope, TracedOp], None]


def name_of(op: TracedOp, position: int) -> str:
    """The name of an input that the op must have."""
    name = op.inputs[position]
    assert name is not None
    return name


def alike(inputs: int) -> Relation:
    """The first `inputs` inputs and the output have equal sizes."""

    def relate(dims: Dims, names: Scope, op: TracedOp) -> None:
        for position in range(inputs):
            for dim in range(names.rank(op.outputs[0])):
                dims.same(names(name_of(op, position), dim), names(op.outputs[0], dim))

    return relate
