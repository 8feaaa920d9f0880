"""How the sizes of latent attention and its cache write are related."""

from __future__ import annotations

from tscompile.simulate.relations.base import Dims, Scope, name_of
from tsruntime.artifact.proof.certificate import TracedOp


def latent_write(dims: Dims, names: Scope, op: TracedOp) -> None:
    """A row a slot; latents and rotary keys make up the pool's width."""
    latent, rope, cache, slots = (name_of(op, i) for i in range(4))
    dims.same(names(latent, 0), names(rope, 0), names(slots, 0))
    dims.same(names(rope, 1), names(cache, 2))
    dims.link(names(latent, 1), names(rope, 2), names(cache, 4))
    for dim in range(5):
        dims.same(names(cache, dim), names(op.outputs[0], dim))


def mla(dims: Dims, names: Scope, op: TracedOp) -> None:
    """Heads as its queries; kv_b has for each the rows of a key and of a value."""
    query, rope, cache, kv_b = (name_of(op, i) for i in range(4))
    y = op.outputs[0]
    for dim in range(2):
        dims.same(names(query, dim), names(rope, dim), names(y, dim))
    made = ("", f"{kv_b} of one head", 0)
    dims.products[names(kv_b, 0)] = (names(y, 1), made)
    dims.unnamed[made] = names.size(kv_b, 0) // names.size(y, 1)
    dims.link(names(query, 2), names(y, 2), made)
    dims.link(names(kv_b, 1), names(rope, 2), names(cache, 4))
