"""The traced program with its values numbered, so that equal computations have one number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from tskernels.errors import TsError
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, DType, OpKind, TensorType
from tsruntime.artifact.proof.certificate import Certificate, TracedGraph, TracedOp
from tsruntime.artifact.proof.errors import CertificateInvalid, Refusal
from tsruntime.artifact.proof.runs import Runs, shifted
from tsruntime.artifact.proof.tile import Piece
from tsruntime.artifact.schema import KvCache, Program

WINDOWS = ("split", "narrow", "slice")
"""Ops that only select a range of one dim: their outputs are windows of their input."""

_SILENT_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "embedding": frozenset({"vocab_start"}),
    "experts": frozenset({"expert_start"}),
    "mla": frozenset({"absorbed"}),
}
"""Attributes that say nothing about what is computed: they differ between ranks, or choose a way.
"""

Window: TypeAlias = tuple[tuple[int, int], ...]
"""A range of each dim of a value."""

Windows: TypeAlias = tuple[Window | None, ...]
"""For each input of an op, the window that it reads, or None where it is all."""

AttributesKey: TypeAlias = tuple[tuple[str, AttributeValue], ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A traced value: a name for messages, its type on one replica, and whether each has its own.

    Where `spread`, dim 0 of all replicas together is their dims one after another.
    """

    name: str
    type: TensorType
    spread: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """What a traced name stands for: a number, or a window of it (None where it is all)."""

    number: int
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """The traced op that a plan's op is: output numbers, and its inputs' tiles in its own terms."""

    outputs: tuple[int, ...]
    tiles: tuple[tuple[Runs, ...], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A match, with what identifies it: kind and attributes, and the windows of its inputs."""

    match: Match
    key: object
    windows: Windows


class Traced:
    """One graph of the certificate at one program's sizes.

    Numbers are given by (op, inputs, attributes): two traced ops that compute the same share one.
    `kinds` holds an integer for each number that is equal for equal types.
    Raises CertificateInvalid where the graph does not type.
    """

    def __init__(
        self,
        certificate: Certificate,
        graph: TracedGraph,
        program: Program,
        kv_cache: KvCache,
        max_pages: int,
    ) -> None:
        self.known: list[Known] = []
        self.kinds: list[int] = []
        self.references: dict[str, Reference] = {}
        self._kinds: dict[object, int] = {}
        self._types: dict[object, tuple[TensorType, ...]] = {}
        self._seen: dict[object, tuple[Reference, ...]] = {}
        self._ops: dict[object, list[tuple[Windows, tuple[int, ...]]]] = {}
        self._experts: dict[int, tuple[int, int]] = {}
        for parameter in certificate.parameters:
            self._source(parameter.name, TensorType(parameter.dtype, parameter.shape), False)
        for constant in certificate.constants:
            type_ = TensorType(constant.dtype, (len(constant.values),))
            self._source(constant.name, type_, False)
        for name in graph.inputs:
            shape = input_shape(name, program, max_pages)
            self._source(name, TensorType(DType.INT32, shape), True)
        for cache in certificate.caches:
            pages, page_size = kv_cache.pages, kv_cache.page_size
            shape = (pages, cache.planes, cache.kv_heads, page_size, cache.head_dim)
            self._source(cache.name, TensorType(cache.dtype, shape), True)
        self._heads = {self.number(cache.name): cache.name for cache in certificate.caches}
        self.last_cache = {cache.name: self.number(cache.name) for cache in certificate.caches}
        for op in graph.ops:
            self._add(op)
        self.output = self.references[graph.output]

    def number(self, name: str) -> int:
        """The number of a traced value; KeyError for an unknown name."""
        return self.references[name].number

    def __getitem__(self, number: int) -> Known:
        return self.known[number]

    def find(
        self, op: str, attributes: Mapping[str, AttributeValue], *inputs: Piece | None
    ) -> Found:
        """The traced op of this kind and these inputs. Refusal where there is none."""
        numbers = tuple(None if piece is None else piece.number for piece in inputs)
        key = (op, _attributes_key(op, attributes))
        for windows, outputs in self._ops.get((key, numbers), ()):
            tiles = [_rebased(p, w) for p, w in zip(inputs, windows, strict=True)]
            found = [tile for tile in tiles if tile is not None]
            if len(found) == len(tiles):
                return Found(Match(outputs, tuple(found)), key, windows)
        raise Refusal(self._unknown(op, numbers, key[1]))

    def found(
        self, key: object, numbers: tuple[int | None, ...], windows: object
    ) -> tuple[int, ...] | None:
        """The outputs of the traced op of exactly these inputs, or None where there is none."""
        for wanted, outputs in self._ops.get((key, numbers), ()):
            if wanted == windows:
                return outputs
        return None

    def experts_of(self, number: int) -> tuple[int, int] | None:
        """Of what experts gave: their ids' number and how many there are. None for other values."""
        return self._experts.get(number)

    def _unknown(self, op: str, numbers: tuple[int | None, ...], key: AttributesKey) -> str:
        called = self._called(op, numbers)
        near = [entry for entry in _entries(self._ops, op) if self._shared(entry[1], numbers)]
        if not near:
            return f"the traced program holds no {called}"
        others_key, others = max(near, key=lambda entry: self._shared(entry[1], numbers))
        if others == numbers:
            given, wanted = (", ".join(f"{k}={v}" for k, v in x) for x in (key, others_key))
            return f"it computes {called} with {given}, the traced program with {wanted}"
        return f"it computes {called}, the traced program {self._called(op, others)}"

    def _called(self, op: str, numbers: Iterable[int | None]) -> str:
        names = ("none" if n is None else self.known[n].name for n in numbers)
        return f"{op}({', '.join(names)})"

    def _shared(self, a: Sequence[int | None], b: Sequence[int | None]) -> int:
        """How much two lists of operands have in common; weights tell more than activations."""
        same = (x for x, y in zip(a, b, strict=True) if x == y and x is not None)
        return sum(1 if self.known[x].spread else 2 for x in same)

    def _source(self, name: str, type_: TensorType, spread: bool) -> None:
        if name in self.references:
            raise CertificateInvalid(name, "two traced values have this name")
        self.references[name] = self._new(name, type_, spread)

    def _new(self, name: str, type_: TensorType, spread: bool) -> Reference:
        self.known.append(Known(name, type_, spread))
        self.kinds.append(self._kinds.setdefault((type_, spread), len(self._kinds)))
        return Reference(len(self.known) - 1)

    def _add(self, op: TracedOp) -> None:
        try:
            references = tuple(None if n is None else self.references[n] for n in op.inputs)
        except KeyError as error:
            raise CertificateInvalid(op.module, f"{op.op} reads the unknown {error}") from None
        key = (op.op, _attributes_key(op.op, op.attributes))
        types = self._infer(op, key, references)
        if any(name in self.references for name in op.outputs) or len(types) != len(op.outputs):
            raise CertificateInvalid(op.module, f"{op.op} has the wrong outputs {op.outputs}")
        outputs = self._seen.get((key, references))
        if outputs is None:
            outputs = self._seen[key, references] = self._outputs(op, references, types)
            numbers = tuple(None if r is None else r.number for r in references)
            windows = tuple(None if r is None else r.window for r in references)
            entry = (windows, tuple(reference.number for reference in outputs))
            self._ops.setdefault((key, numbers), []).append(entry)
        self.references.update(zip(op.outputs, outputs, strict=True))
        if op.op == "experts":
            ids, gate = references[1], self._type(references[3])
            assert ids is not None
            assert gate is not None
            self._experts[outputs[0].number] = (ids.number, gate.shape[0])
        for output, source in (OPS[op.op].schema.mutates or {}).items():
            self._note_write(references[source], outputs[output])

    def _infer(
        self, op: TracedOp, key: object, references: tuple[Reference | None, ...]
    ) -> tuple[TensorType, ...]:
        schema = OPS[op.op].schema
        starts = (op.attributes.get(name) for name in ("vocab_start", "expert_start"))
        if schema.kind is OpKind.COLLECTIVE or op.op == "mask" or any(starts):
            raise CertificateInvalid(op.module, f"{op.op} is no op of an unsharded program")
        seen = (key, *(r and (self.kinds[r.number], r.window) for r in references))
        if seen not in self._types:
            try:
                attributes = resolve_attributes(schema, op.attributes)
                self._types[seen] = schema.infer([self._type(r) for r in references], attributes)
            except (TypeError, TsError) as error:
                raise CertificateInvalid(op.module, f"{op.op} does not type: {error}") from None
        return self._types[seen]

    def _note_write(self, cache: Reference | None, written: Reference) -> None:
        name = self._heads.pop(-1 if cache is None else cache.number, None)
        if name is not None:
            self.last_cache[name] = written.number
            self._heads[written.number] = name

    def _outputs(
        self, op: TracedOp, inputs: tuple[Reference | None, ...], types: Sequence[TensorType]
    ) -> tuple[Reference, ...]:
        source = inputs[0]
        if op.op in WINDOWS and source is not None:
            starts = window_starts(op, types)
            return tuple(self._window(source, *cut) for cut in starts)
        spread = any(r is not None and self.known[r.number].spread for r in inputs)
        return tuple(
            self._new(name, type_, spread) for name, type_ in zip(op.outputs, types, strict=True)
        )

    def _window(self, source: Reference, dim: int, start: int, size: int) -> Reference:
        known = self.known[source.number]
        window = source.window or tuple((0, extent) for extent in known.type.shape)
        if known.spread and dim == 0:
            raise CertificateInvalid(known.name, "a range of its rows is not supported")
        first = window[dim][0] + start
        return Reference(source.number, (*window[:dim], (first, first + size), *window[dim + 1 :]))

    def _type(self, reference: Reference | None) -> TensorType | None:
        if reference is None:
            return None
        type_ = self.known[reference.number].type
        if reference.window is None:
            return type_
        return TensorType(type_.dtype, tuple(stop - start for start, stop in reference.window))


def input_shape(name: str, program: Program, max_pages: int) -> tuple[int, ...]:
    """Shape of a program's input on one replica, as `schema.Program` says."""
    match name.partition(".")[0]:
        case "token_ids" | "positions" | "slot_mapping":
            return (program.tokens,)
        case "query_starts":
            return (program.sequences + 1,)
        case "seq_lens" | "logit_rows":
            return (program.sequences,)
        case "block_table":
            return (program.sequences, max_pages)
        case _:
            raise CertificateInvalid(name, "no program has such an input")


def window_starts(op: TracedOp, types: Sequence[TensorType]) -> list[tuple[int, int, int]]:
    """(dim, start, size) of each output of a split, narrow or slice, in the input's indices."""
    rank = len(types[0].shape)
    if op.op == "split":
        sizes = [type_.shape[-1] for type_ in types]
        return [(rank - 1, sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    dim, start, size = (op.attributes[name] for name in ("dim", "start", "size"))
    assert isinstance(dim, int)
    assert isinstance(start, int)
    assert isinstance(size, int)
    return [(dim % rank, start, size)]


def _attributes_key(op: str, attributes: Mapping[str, AttributeValue]) -> AttributesKey:
    """The attributes that say what is computed, defaults filled in."""
    return _full_key(op, tuple(sorted(attributes.items())))


@lru_cache(maxsize=4096)
def _full_key(op: str, given: AttributesKey) -> AttributesKey:
    if op not in OPS:
        raise CertificateInvalid(op, "there is no such op")
    silent = _SILENT_ATTRIBUTES.get(op, frozenset())
    try:
        full = resolve_attributes(OPS[op].schema, dict(given))
    except TypeError as error:
        raise CertificateInvalid(op, str(error)) from None
    return tuple(sorted((name, value) for name, value in full.items() if name not in silent))


def _entries(
    table: Iterable[object], op: str
) -> Iterable[tuple[AttributesKey, tuple[int | None, ...]]]:
    for (name, key), numbers in cast("Iterable[Any]", table):
        if name == op:
            yield key, numbers


def _rebased(piece: Piece | None, window: Window | None) -> tuple[Runs, ...] | None:
    """The piece's tile counted from the start of the window, or None if it is not inside."""
    if piece is None or window is None:
        return () if piece is None else piece.tile
    dims: list[Runs] = []
    for dim, (runs, (first, last)) in enumerate(zip(piece.tile, window, strict=True)):
        if dim and any(start < first or stop > last for start, stop in runs):
            return None
        dims.append(shifted(runs, -first) if dim else runs)
    return tuple(dims)
