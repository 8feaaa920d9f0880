"""What norms, sums and activations do to tiles and sums."""

from __future__ import annotations

from dataclasses import replace

from tsruntime.artifact.proof.held import EVERYTHING, summed
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import whole
from tsruntime.artifact.proof.semantics.base import (
    Attributes,
    Inputs,
    alike,
    complete,
    equal,
    one,
    present,
)
from tsruntime.artifact.proof.tile import Local, Piece, local


def rms_norm(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Rows and heads are independent; the normed dim is whole."""
    x, weight = present(inputs[0]).only, present(inputs[1]).only
    complete("input", x)
    complete("weight", weight)
    match = traced.find("rms_norm", attributes, x, weight)
    width = traced[match.outputs[0]].type.shape[-1]
    equal("its input's last dim and the whole", match.tiles[0][-1], whole(width))
    equal("its weight and the whole", match.tiles[1][0], whole(width))
    return one(Piece(match.outputs[0], match.tiles[0], EVERYTHING))


def add(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """The sum of what is held of each."""
    triples = alike(traced, "add", inputs, attributes)
    pieces = [replace(out, held=summed(a.held, b.held)) for out, a, b in triples]
    return (local(present(inputs[0]).dim, pieces),)


def silu_mul(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Element by element; neither may be an unfinished sum."""
    triples = alike(traced, "silu_mul", inputs, attributes)
    for _, gate, up in triples:
        complete("gate", gate)
        complete("up", up)
    pieces = [replace(out, held=EVERYTHING) for out, _, _ in triples]
    return (local(present(inputs[0]).dim, pieces),)
