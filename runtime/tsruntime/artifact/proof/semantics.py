"""What each local op does to tiles and sums: the checker's own meaning of the operators.

Every function takes the traced program, one rank's inputs and its resolved attributes, and gives
that rank's outputs; it refuses what it cannot show to be a tile of a traced value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from tskernels.schema import AttributeValue
from tsruntime.artifact.proof.errors import Refusal
from tsruntime.artifact.proof.held import (
    EVERYTHING,
    NOTHING,
    contracted,
    described,
    summed,
)
from tsruntime.artifact.proof.lookup import Lookup
from tsruntime.artifact.proof.runs import Overlap, Runs, divided, length, multiplied, shown, whole
from tsruntime.artifact.proof.tile import Local, Piece, cut, local

Attributes: TypeAlias = Mapping[str, AttributeValue]
Inputs: TypeAlias = Sequence[Local | None]
Semantics: TypeAlias = Callable[[Lookup, Inputs, Attributes], tuple[Local, ...]]


def _present(x: Local | None) -> Local:
    if x is None:
        raise Refusal("an input is missing")
    return x


def _one(piece: Piece) -> tuple[Local, ...]:
    return (Local(0, (piece,)),)


def _complete(name: str, piece: Piece) -> None:
    if piece.held is not EVERYTHING:
        raise Refusal(f"its {name} is an unfinished sum: this rank holds {described(piece.held)}")


def _equal(what: str, first: Runs, second: Runs) -> None:
    if first != second:
        raise Refusal(f"{what} differ: {shown(first)} against {shown(second)}")


def _integer(attributes: Attributes, name: str) -> int:
    value = attributes[name]
    assert isinstance(value, int)
    return value


def _replica(traced: Lookup, name: str, piece: Piece) -> int:
    """The replica whose rows (all of them, and no others) the piece holds."""
    size = traced[piece.number].type.shape[0]
    rows = piece.tile[0]
    if len(rows) == 1 and rows[0][1] - rows[0][0] == size and rows[0][0] % size == 0:
        return rows[0][0] // size
    raise Refusal(f"its {name} holds the rows {shown(rows)}, not all {size} of one replica")


def _same_replica(traced: Lookup, **pieces: Piece) -> None:
    found = {name: _replica(traced, name, piece) for name, piece in pieces.items()}
    if len(set(found.values())) > 1:
        raise Refusal(f"its inputs belong to different replicas: {found}")


def _whole_dim(traced: Lookup, name: str, piece: Piece, dim: int) -> None:
    size = traced[piece.number].type.shape[dim]
    if piece.tile[dim] != whole(size):
        raise Refusal(f"its {name} holds {shown(piece.tile[dim])} of the {size} in dim {dim}")


def _linear(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Rows of the weight become columns of the result; shared columns are summed over."""
    x, weight = _present(inputs[0]).only, _present(inputs[1])
    biases = [None] * len(weight.pieces) if inputs[2] is None else list(inputs[2].pieces)
    if weight.dim != 0 or len(biases) != len(weight.pieces):
        raise Refusal("its weight and bias are packed differently")
    columns = [
        _column(traced, attributes, x, w, b) for w, b in zip(weight.pieces, biases, strict=True)
    ]
    return (local(1, columns),)


def _column(
    traced: Lookup, attributes: Attributes, x: Piece, weight: Piece, bias: Piece | None
) -> Piece:
    match = traced.find("linear", attributes, x, weight, bias)
    x_tile, weight_tile, bias_tile = match.tiles
    _equal("the columns of its input and of its weight", x_tile[1], weight_tile[1])
    _complete("weight", weight)
    size = traced[weight.number].type.shape[1]
    try:
        held = contracted(x.held, weight_tile[1], size)
    except Overlap as overlap:
        raise Refusal(f"it contracts over a column twice: {overlap}") from None
    if bias is not None:
        _equal("the rows of its weight and of its bias", weight_tile[0], bias_tile[0])
        held = summed(held, bias.held)
    return Piece(match.outputs[0], (x_tile[0], weight_tile[0]), held)


def _embedding(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """A sum over the vocabulary, each rank adding the rows that its ids find."""
    ids, weight = _present(inputs[0]).only, _present(inputs[1]).only
    _complete("weight", weight)
    match = traced.find("embedding", attributes, ids, weight)
    rows, columns = match.tiles[1]
    start = _integer(attributes, "vocab_start")
    if len(rows) != 1 or rows[0][0] != start:
        raise Refusal(f"its weight holds the rows {shown(rows)}, but vocab_start is {start}")
    held = contracted(EVERYTHING, rows, traced[weight.number].type.shape[0])
    return _one(Piece(match.outputs[0], (match.tiles[0][0], columns), held))


def _rms_norm(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Rows and heads are independent; the normed dim is whole."""
    x, weight = _present(inputs[0]).only, _present(inputs[1]).only
    _complete("input", x)
    _complete("weight", weight)
    match = traced.find("rms_norm", attributes, x, weight)
    width = traced[match.outputs[0]].type.shape[-1]
    _equal("its input's last dim and the whole", match.tiles[0][-1], whole(width))
    _equal("its weight and the whole", match.tiles[1][0], whole(width))
    return _one(Piece(match.outputs[0], match.tiles[0], EVERYTHING))


def _alike(
    traced: Lookup, op: str, inputs: Inputs, attributes: Attributes
) -> list[tuple[Piece, Piece, Piece]]:
    """(output with nothing said of its sums, first, second) of each pair of pieces."""
    first, second = _present(inputs[0]), _present(inputs[1])
    if first.dim != second.dim or len(first.pieces) != len(second.pieces):
        raise Refusal("its inputs are packed differently")
    result: list[tuple[Piece, Piece, Piece]] = []
    for a, b in zip(first.pieces, second.pieces, strict=True):
        match = traced.find(op, attributes, a, b)
        for dim, (left, right) in enumerate(zip(*match.tiles, strict=True)):
            _equal(f"the indices of its inputs along dim {dim}", left, right)
        result.append((Piece(match.outputs[0], match.tiles[0], NOTHING), a, b))
    return result


def _add(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """The sum of what is held of each."""
    triples = _alike(traced, "add", inputs, attributes)
    pieces = [replace(out, held=summed(a.held, b.held)) for out, a, b in triples]
    return (local(_present(inputs[0]).dim, pieces),)


def _silu_mul(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    triples = _alike(traced, "silu_mul", inputs, attributes)
    for _, gate, up in triples:
        _complete("gate", gate)
        _complete("up", up)
    pieces = [replace(out, held=EVERYTHING) for out, _, _ in triples]
    return (local(_present(inputs[0]).dim, pieces),)


def _rotary_table(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    positions, frequencies = _present(inputs[0]).only, _present(inputs[1]).only
    _complete("inv_freq", frequencies)
    match = traced.find("rotary_table", attributes, positions, frequencies)
    _whole_dim(traced, "inv_freq", frequencies, 0)
    columns = whole(traced[match.outputs[0]].type.shape[1])
    return _one(Piece(match.outputs[0], (match.tiles[0][0], columns), EVERYTHING))


def _rotary(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Each row by its own angles; heads are independent and whole."""
    x, table = _present(inputs[0]).only, _present(inputs[1]).only
    _complete("input", x)
    _complete("table", table)
    match = traced.find("rotary", attributes, x, table)
    _equal("the rows of its input and of its table", match.tiles[0][0], match.tiles[1][0])
    _whole_dim(traced, "table", table, 1)
    width = traced[match.outputs[0]].type.shape[2]
    _equal("its heads and the whole of one", match.tiles[0][2], whole(width))
    return _one(Piece(match.outputs[0], match.tiles[0], EVERYTHING))


def _kv_write(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """All rows of one replica into its own pages, the heads that the pool holds."""
    key, value, cache, slots = (_present(x).only for x in inputs)
    _complete("key", key)
    _complete("value", value)
    match = traced.find("kv_write", attributes, key, value, cache, slots)
    _same_replica(traced, cache=cache, slot_mapping=slots)
    for name, tile in (("keys", match.tiles[0]), ("values", match.tiles[1])):
        _equal(f"the rows of its {name} and of its slots", tile[0], slots.tile[0])
        _equal(f"the heads of its {name} and of the cache", tile[1], cache.tile[2])
        _equal(f"the width of its {name} and of the cache", tile[2], cache.tile[4])
    return _one(replace(cache, number=match.outputs[0]))


def _attention(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """All rows of one replica over its own pages; each query head by its own key head."""
    query, cache, table, lengths, starts = (_present(x).only for x in inputs)
    _complete("query", query)
    match = traced.find("attention", attributes, query, cache, table, lengths, starts)
    _same_replica(
        traced, query=query, cache=cache, block_table=table, seq_lens=lengths, query_starts=starts
    )
    width = traced[match.outputs[0]].type.shape[2]
    _equal("its heads and the whole of one", match.tiles[0][2], whole(width))
    _match_heads(traced, match.tiles[0][1], query.number, cache)
    return _one(Piece(match.outputs[0], match.tiles[0], EVERYTHING))


def _match_heads(traced: Lookup, heads: Runs, query: int, cache: Piece) -> None:
    """Local query head i reads local key head i // (local ratio): the global one must be right."""
    kv_heads = cache.tile[2]
    ratio = traced[query].type.shape[1] // traced[cache.number].type.shape[2]
    local_ratio, left = divmod(length(heads), length(kv_heads))
    listed = [head for start, stop in heads for head in range(start, stop)]
    keys = [head for start, stop in kv_heads for head in range(start, stop)]
    if left or any(keys[i // local_ratio] != head // ratio for i, head in enumerate(listed)):
        raise Refusal(
            f"its query heads {shown(heads)} do not belong to the key heads {shown(kv_heads)} "
            f"({ratio} query heads each)"
        )


def _select_rows(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Rows are counted in their own replica's; selecting is linear, so sums may be unfinished."""
    x, rows = _present(inputs[0]).only, _present(inputs[1]).only
    match = traced.find("select_rows", attributes, x, rows)
    _same_replica(traced, x=x, rows=rows)
    return _one(Piece(match.outputs[0], (rows.tile[0], match.tiles[0][1]), x.held))


def _mask(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Kept on coordinate 0, zero elsewhere."""
    x = _present(inputs[0])
    if _integer(attributes, "coordinate") == 0:
        return (x,)
    return (local(x.dim, [replace(piece, held=NOTHING) for piece in x.pieces]),)


def _range(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    x = _present(inputs[0])
    dim, start, size = (_integer(attributes, name) for name in ("dim", "start", "size"))
    return (cut(x, dim % len(x.shape), start, size),)


def _split(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    x, sizes = _present(inputs[0]), attributes["sizes"]
    assert isinstance(sizes, tuple)
    dim, parts, start = len(x.shape) - 1, list[Local](), 0
    for size in sizes:
        assert isinstance(size, int)
        parts.append(cut(x, dim, start, size))
        start += size
    return tuple(parts)


def _unflatten(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Columns become whole heads."""
    x, size = _present(inputs[0]), _integer(attributes, "size")
    pieces: list[Piece] = []
    for piece in x.pieces:
        match = traced.find("unflatten", attributes, piece)
        rows, columns = match.tiles[0]
        heads = divided(columns, size)
        if heads is None:
            raise Refusal(f"its columns {shown(columns)} cut a head of {size}")
        pieces.append(Piece(match.outputs[0], (rows, heads, whole(size)), piece.held))
    return (local(x.dim, pieces),)


def _flatten(traced: Lookup, inputs: Inputs, attributes: Attributes) -> tuple[Local, ...]:
    """Heads, which must be whole, become columns."""
    x = _present(inputs[0])
    pieces: list[Piece] = []
    for piece in x.pieces:
        match = traced.find("flatten", attributes, piece)
        rows, heads, width = match.tiles[0]
        size = traced[piece.number].type.shape[2]
        _equal("its heads and the whole of one", width, whole(size))
        pieces.append(Piece(match.outputs[0], (rows, multiplied(heads, size)), piece.held))
    return (local(x.dim, pieces),)


SEMANTICS: Mapping[str, Semantics] = MappingProxyType(
    {
        "embedding": _embedding,
        "linear": _linear,
        "rms_norm": _rms_norm,
        "add": _add,
        "silu_mul": _silu_mul,
        "rotary_table": _rotary_table,
        "rotary": _rotary,
        "kv_write": _kv_write,
        "attention": _attention,
        "select_rows": _select_rows,
        "mask": _mask,
        "slice": _range,
        "narrow": _range,
        "split": _split,
        "unflatten": _unflatten,
        "flatten": _flatten,
    }
)
"""The local ops that the checker understands; an op that is not here proves nothing."""
