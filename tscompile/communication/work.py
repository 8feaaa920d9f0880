"""What one op of a frozen plan moves and computes on one rank: the numbers that it is priced by.

The same rules price the ops in the search (see `tscompile.rules`); a fused op is its parts, less
what they hand over without writing it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tscompile.rules import RULES, OpTypes
from tscompile.rules.rule import elements, size_in_bytes
from tskernels.schema import TensorType
from tsruntime.artifact.schema import Attribute

Types = tuple[TensorType | None, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An op on one rank's types. `unread` are the outputs, by position, that nothing reads."""

    op: str
    inputs: Types
    outputs: tuple[TensorType, ...]
    attributes: Mapping[str, Attribute]
    whole: Types
    unread: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes between memory and the chip, operations, and launches of one op."""

    moved: int
    flops: int = 0
    launches: int = 1

    def __add__(self, other: Work) -> Work:
        return Work(self.moved + other.moved, self.flops + other.flops, 1)

    def less(self, saved: int) -> Work:
        """The same without `saved` bytes, which stay on the chip."""
        return replace(self, moved=self.moved - saved)


def work_of(call: Call) -> Work:
    """The work of any op that runs; KeyError for one that is neither ruled nor known here."""
    if call.op in _WORK:
        return _WORK[call.op](call)
    return _ruled(call.op, call.inputs, call.outputs, call)


def _ruled(op: str, inputs: Types, outputs: tuple[TensorType, ...], call: Call) -> Work:
    rule, types = RULES[op], OpTypes(inputs, outputs, call.attributes, call.whole)
    return Work(rule.traffic(types), rule.flops(types))


def _copied(call: Call) -> Work:
    """What is kept is read and written."""
    return Work(2 * size_in_bytes(call.outputs[0]))


def _packed(call: Call) -> Work:
    """Rows, ids and weights are laid out in a block for each destination."""
    return Work(2 * sum(size_in_bytes(t) for t in call.outputs))


def _unpacked(call: Call) -> Work:
    return Work(2 * size_in_bytes(call.inputs[0]))


def _add_rms_norm(call: Call) -> Work:
    x, residual, gain = call.inputs
    total, normed = call.outputs
    parts = _ruled("add", (x, residual), (total,), call)
    parts += _ruled("rms_norm", (total, gain), (normed,), call)
    return parts.less(size_in_bytes(total) * (2 if 0 in call.unread else 1))


def _gated(call: Call) -> Work:
    """A product and silu_mul, which takes it as it is made."""
    (half,) = call.outputs
    both = replace(half, shape=(half.shape[0], 2 * half.shape[1]))
    parts = _ruled(call.op.removesuffix("_silu_mul"), call.inputs, (both,), call)
    parts += _ruled("silu_mul", (half, half), (half,), call)
    return parts.less(2 * size_in_bytes(both))


def _rope_kv_write(call: Call) -> Work:
    query, key, value, table, cache, slots = call.inputs
    return _turned(call, query, key, (value, table, cache, slots))


def _qk_norm_rope_kv_write(call: Call) -> Work:
    query, key, value, query_gain, key_gain, *rest = call.inputs
    assert query is not None
    assert key is not None
    parts = _turned(call, query, key, (value, *rest))
    for x, gain in ((query, query_gain), (key, key_gain)):
        parts += _ruled("rms_norm", (x, gain), (x,), call).less(2 * size_in_bytes(x))
    return parts


def _turned(call: Call, query: TensorType | None, key: TensorType | None, rest: Types) -> Work:
    """Both rotated, and the key written with its value; the turned key is not written itself."""
    value, table, cache, slots = rest
    assert query is not None
    assert key is not None
    parts = _ruled("rotary", (query, table), (query,), call)
    parts += _ruled("rotary", (key, table), (key,), call)
    parts += _ruled("kv_write", (key, value, cache, slots), (call.outputs[1],), call)
    return parts.less(2 * size_in_bytes(key))


def _reduction(call: Call) -> Work:
    """The add and norm work on a tile as the residual has it; the wires are priced apart."""
    x, _, residual = call.inputs
    size = call.attributes["size"]
    assert isinstance(size, int)
    scattered = call.op != "all_reduce_add_rms_norm"
    tile = size_in_bytes(x) // (size if scattered else 1)
    return Work(tile * (3 if residual is None else 4))


def _collective(call: Call) -> Work:
    """Collectives move blocks of dim 0; along an inner dim the blocks are copied together."""
    x, copies = call.inputs[0], list[int]()
    scatter = {"reduce_scatter": "dim", "all_to_all": "split_dim"}.get(call.op)
    gather = {"all_gather": "dim", "all_to_all": "concat_dim"}.get(call.op)
    for name, tile in ((scatter, x), (gather, call.outputs[0])):
        dim = 0 if name is None else call.attributes[name]
        assert isinstance(dim, int)
        assert tile is not None
        if elements(replace(tile, shape=tile.shape[:dim])) > 1:
            copies.append(2 * size_in_bytes(tile))
    return Work(sum(copies), 0, 1 + len(copies))


_WORK: Mapping[str, Callable[[Call], Work]] = {
    "permute": _copied,
    "slice": _copied,
    "mask": _copied,
    "dispatch": _packed,
    "combine": _unpacked,
    "add_rms_norm": _add_rms_norm,
    "linear_silu_mul": _gated,
    "scaled_linear_silu_mul": _gated,
    "rope_kv_write": _rope_kv_write,
    "qk_norm_rope_kv_write": _qk_norm_rope_kv_write,
    "all_reduce_add_rms_norm": _reduction,
    "reduce_scatter_add_rms_norm": _reduction,
    "reduce_scatter_add_rms_norm_all_gather": _reduction,
    "all_reduce": _collective,
    "reduce_scatter": _collective,
    "all_gather": _collective,
    "all_to_all": _collective,
}
