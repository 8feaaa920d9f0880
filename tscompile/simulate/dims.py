"""Which dims of a traced program are one size: found from what its ops do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from tscompile.simulate.errors import CannotShrink
from tsruntime.artifact.proof.certificate import Certificate, Rows, TracedOp
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


@dataclass
class Dims:
    """Classes of dims of equal size, and how some sizes follow from others.

    `products` maps a dim to the two whose product it is, `halves` to the one that it is half of,
    `groups` holds (query heads, key heads): the first is a multiple of the second.
    """

    products: dict[Dim, tuple[Dim, Dim]] = field(default_factory=dict[Dim, "tuple[Dim, Dim]"])
    halves: dict[Dim, Dim] = field(default_factory=dict[Dim, Dim])
    groups: list[tuple[Dim, Dim]] = field(default_factory=list["tuple[Dim, Dim]"])
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
        self.groups = sorted({(find(q), find(k)) for q, k in self.groups})


Relation: TypeAlias = Callable[[Dims, Scope, TracedOp], None]


def scope_of(certificate: Certificate, rows: Rows, traced: Traced) -> Scope:
    """The names of the graph that `traced` numbers."""
    sources = (*certificate.parameters, *certificate.constants, *certificate.caches)
    return Scope(rows, frozenset(source.name for source in sources), traced)


def dims_of(certificate: Certificate, scopes: Iterable[Scope]) -> Dims:
    """The classes over the graphs of `scopes`; weights are shared by them. Raises CannotShrink."""
    dims = Dims()
    for scope in scopes:
        graph = certificate.graphs[scope.rows]
        _sources(dims, certificate, scope, graph.inputs)
        for op in graph.ops:
            if op.op not in RELATIONS:
                raise CannotShrink(
                    f"how {op.op} relates its sizes is not known",
                    remedy="simulate without --shrink",
                    where=op.module,
                )
            RELATIONS[op.op](dims, scope, op)
    dims.settle()
    return dims


def _sources(dims: Dims, certificate: Certificate, scope: Scope, inputs: Sequence[str]) -> None:
    """Everything that has a row a token has as many rows; pools of one group are alike."""
    for name in inputs:
        kind = name.partition(".")[0]
        if kind in ("token_ids", "positions", "slot_mapping"):
            dims.same(TOKENS, scope(name, 0))
        if kind in ("seq_lens", "logit_rows", "block_table"):
            dims.same(SEQUENCES, scope(name, 0))
    for cache in certificate.caches:
        group = ("", f"cache group {cache.group}", 0)
        dims.same(PAGES, scope(cache.name, 0))
        dims.same(PAGE_SIZE, scope(cache.name, 3))
        for dim in (2, 4):
            dims.same((*group[:2], dim), scope(cache.name, dim))


def _name(op: TracedOp, position: int) -> str:
    name = op.inputs[position]
    assert name is not None
    return name


def _linear(dims: Dims, names: Scope, op: TracedOp) -> None:
    x, weight, y = _name(op, 0), _name(op, 1), op.outputs[0]
    dims.same(names(x, 0), names(y, 0))
    dims.same(names(x, 1), names(weight, 1))
    dims.same(names(weight, 0), names(y, 1))
    if op.inputs[2] is not None:
        dims.same(names(op.inputs[2], 0), names(y, 1))


def _embedding(dims: Dims, names: Scope, op: TracedOp) -> None:
    dims.same(names(_name(op, 0), 0), names(op.outputs[0], 0))
    dims.same(names(_name(op, 1), 1), names(op.outputs[0], 1))


def _rms_norm(dims: Dims, names: Scope, op: TracedOp) -> None:
    _alike(1)(dims, names, op)
    dims.same(names(_name(op, 1), 0), names(op.outputs[0], -1))


def _alike(inputs: int) -> Relation:
    """The first `inputs` inputs and the output have equal sizes."""

    def relate(dims: Dims, names: Scope, op: TracedOp) -> None:
        for position in range(inputs):
            for dim in range(names.rank(op.outputs[0])):
                dims.same(names(_name(op, position), dim), names(op.outputs[0], dim))

    return relate


def _rotary_table(dims: Dims, names: Scope, op: TracedOp) -> None:
    dims.same(names(_name(op, 0), 0), names(op.outputs[0], 0))
    dims.halves[names(_name(op, 1), 0)] = names(op.outputs[0], 1)


def _rotary(dims: Dims, names: Scope, op: TracedOp) -> None:
    _alike(1)(dims, names, op)
    dims.same(names(_name(op, 1), 0), names(op.outputs[0], 0))
    dims.same(names(_name(op, 1), 1), names(op.outputs[0], 2))


def _kv_write(dims: Dims, names: Scope, op: TracedOp) -> None:
    key, value, cache, slots = (_name(op, i) for i in range(4))
    for source in (key, value):
        dims.same(names(source, 0), names(slots, 0))
        dims.same(names(source, 1), names(cache, 2))
        dims.same(names(source, 2), names(cache, 4))
    for dim in range(5):
        dims.same(names(cache, dim), names(op.outputs[0], dim))


def _attention(dims: Dims, names: Scope, op: TracedOp) -> None:
    _alike(1)(dims, names, op)
    query, cache = _name(op, 0), _name(op, 1)
    dims.same(names(query, 2), names(cache, 4))
    dims.groups.append((names(query, 1), names(cache, 2)))


def _select_rows(dims: Dims, names: Scope, op: TracedOp) -> None:
    dims.same(names(_name(op, 1), 0), names(op.outputs[0], 0))
    dims.same(names(_name(op, 0), 1), names(op.outputs[0], 1))


def _unflatten(dims: Dims, names: Scope, op: TracedOp) -> None:
    x, y = _name(op, 0), op.outputs[0]
    dims.same(names(x, 0), names(y, 0))
    dims.products[names(x, 1)] = (names(y, 1), names(y, 2))


def _flatten(dims: Dims, names: Scope, op: TracedOp) -> None:
    x, y = _name(op, 0), op.outputs[0]
    dims.same(names(x, 0), names(y, 0))
    dims.products[names(y, 1)] = (names(x, 1), names(x, 2))


RELATIONS: Mapping[str, Relation] = MappingProxyType(
    {
        "embedding": _embedding,
        "linear": _linear,
        "rms_norm": _rms_norm,
        "add": _alike(2),
        "silu_mul": _alike(2),
        "rotary_table": _rotary_table,
        "rotary": _rotary,
        "kv_write": _kv_write,
        "attention": _attention,
        "select_rows": _select_rows,
        "unflatten": _unflatten,
        "flatten": _flatten,
    }
)
"""How the sizes of an op's operands are related."""
