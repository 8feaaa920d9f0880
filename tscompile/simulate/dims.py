"""Which dims of a traced program are one size: found from what its ops do with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tscompile.simulate.errors import CannotShrink
from tscompile.simulate.relations.base import (
    PAGE_SIZE,
    PAGES,
    SEQUENCES,
    TOKENS,
    Dims,
    Scope,
)
from tscompile.simulate.relations.table import RELATIONS
from tsruntime.artifact.proof.certificate import Certificate, Rows
from tsruntime.artifact.proof.traced import Traced


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
