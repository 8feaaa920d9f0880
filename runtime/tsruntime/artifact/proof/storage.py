"""The memory plan: every op reads what was written for it, and writes over nothing still read."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tskernels.ops import OPS
from tskernels.schema import OpKind
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import ArenaStorage, CacheStorage, Op, Program, Value


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A value's bytes in the arena, from its first to its last; strided ones count as full."""

    name: str
    start: int
    stop: int

    def meets(self, other: _Bytes) -> bool:
        return self.start < other.stop and other.start < self.stop


@dataclass(slots=True)
class _Block:
    """Bytes that an op's result fills, with the names under which they are known: it, its views.

    Whatever is written into them later makes all of these stale.
    """

    start: int
    stop: int
    names: list[str]


def check_storage(program: Program) -> None:
    """Raise PlanUnproven where an op reads or keeps bytes that another one wrote meanwhile."""
    _Walk(program).run()


class _Walk:
    """The ops in order, with the values whose bytes are still as their op left them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._values = {value.name: value for value in program.values}
        produced = {name for op in program.ops for name in op.outputs}
        self._intact = {n for n in self._values if n not in produced}
        self._sharing: dict[object, list[str]] = {}
        for value in program.values:
            if isinstance(value.storage, CacheStorage):
                self._sharing.setdefault(value.storage, []).append(value.name)
        self._blocks: list[_Block] = []
        self._block_of: dict[str, _Block] = {}
        self._written_by: dict[str, str] = {}

    def run(self) -> None:
        for index, op in enumerate(self._program.ops):
            where = f"program {self._program.name}, op {index} ({op.op} in {op.module})"
            self._read(op.inputs, where)
            if OPS[op.op].schema.kind is OpKind.VIEW:
                self._view(op, where)
            else:
                self._write(op, where)
        self._read((self._program.output,), f"program {self._program.name}, its end")

    def _read(self, names: Iterable[str | None], where: str) -> None:
        for name in names:
            if name is not None and name not in self._intact:
                by = self._written_by.get(name)
                what = f"{by} has overwritten it" if by else "nothing has written it"
                raise PlanUnproven(where, f"it reads {name}, but {what}")

    def _write(self, op: Op, where: str) -> None:
        mutates = OPS[op.op].schema.mutates or {}
        inputs = [_bytes(self._values[n]) for n in op.inputs if n is not None]
        for position, name in enumerate(op.outputs):
            storage = self._values[name].storage
            if position in mutates:
                self._take_over(op.inputs[mutates[position]], name, where)
            elif not isinstance(storage, ArenaStorage):
                raise PlanUnproven(where, f"it writes {name} into a {storage.kind}")
            elif not _distinct(self._values[name].shape, storage.strides):
                raise PlanUnproven(where, f"the elements of {name} lie over one another")
            else:
                self._overwrite(_bytes(self._values[name]), inputs, where)
            self._intact.add(name)
        self._outputs_apart(op, where)

    def _take_over(self, source: str | None, name: str, where: str) -> None:
        """A cache changes in place: all other names of it are stale from here on."""
        storage = self._values[name].storage
        if source is None or self._values[source].storage != storage:
            raise PlanUnproven(where, f"{name} is not where {source} is, which it changes")
        for other in self._sharing.get(storage, ()):
            if other in self._intact:
                self._intact.discard(other)
                self._written_by[other] = name
        if not isinstance(storage, CacheStorage):
            raise PlanUnproven(where, f"it changes a {storage.kind} in place")

    def _overwrite(
        self, written: _Bytes | None, inputs: Sequence[_Bytes | None], where: str
    ) -> None:
        if written is None:
            return
        for source in inputs:
            if source is not None and written.meets(source):
                raise PlanUnproven(where, f"it writes {written.name} over its input {source.name}")
        first, last = self._met_by(written)
        for block in self._blocks[first:last]:
            for name in block.names:
                self._intact.discard(name)
                self._written_by[name] = written.name
        block = _Block(written.start, written.stop, [written.name])
        self._blocks[first:last] = [block]
        self._block_of[written.name] = block

    def _met_by(self, written: _Bytes) -> tuple[int, int]:
        """The range of blocks that share bytes with it; blocks are apart and in order."""
        first = bisect_right(self._blocks, written.start, key=lambda block: block.stop)
        last = bisect_left(self._blocks, written.stop, key=lambda block: block.start)
        return first, max(first, last)

    def _outputs_apart(self, op: Op, where: str) -> None:
        for name in op.outputs:
            if name not in self._intact:
                raise PlanUnproven(where, f"it writes another output over {name}")

    def _view(self, op: Op, where: str) -> None:
        """A view's place must be the one that the op's strides give."""
        source = self._values[op.inputs[0] or ""]
        for name, place in zip(op.outputs, _view_places(op, source, self._values), strict=True):
            value = self._values[name]
            if not isinstance(value.storage, ArenaStorage) or place is None:
                raise PlanUnproven(where, f"{name} is no view of the arena")
            found = value.storage.offset_bytes, _strides(value.shape, value.storage.strides)
            if found != (place[0], _strides(value.shape, place[1])):
                raise PlanUnproven(
                    where,
                    f"{name} is at byte {found[0]} with strides {value.storage.strides}, but a "
                    f"view of {source.name} there is at {place[0]} with {place[1]}",
                )
            self._intact.add(name)
            if (block := self._block_of.get(source.name)) is not None:
                block.names.append(name)
                self._block_of[name] = block


def _bytes(value: Value) -> _Bytes | None:
    storage = value.storage
    if not isinstance(storage, ArenaStorage) or not math.prod(value.shape):
        return None
    last = sum((n - 1) * s for n, s in zip(value.shape, storage.strides, strict=True))
    size = value.dtype.itemsize
    return _Bytes(value.name, storage.offset_bytes, storage.offset_bytes + (last + 1) * size)


def _distinct(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether each element has a place of its own: each stride steps over all the smaller ones."""
    reach = 0
    for stride, size in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the dims in which there is anything to step over."""
    return tuple(s for n, s in zip(shape, strides, strict=True) if n > 1)


def _view_places(
    op: Op, source: Value, values: dict[str, Value]
) -> list[tuple[int, tuple[int, ...]] | None]:
    """Offset in bytes and strides of each output, or None where no view can be made."""
    storage = source.storage
    if not isinstance(storage, ArenaStorage):
        return [None] * len(op.outputs)
    base, strides, size = storage.offset_bytes, storage.strides, source.dtype.itemsize
    match op.op:
        case "split":
            starts = [0]
            for name in op.outputs:
                starts.append(starts[-1] + values[name].shape[-1])
            return [(base + s * strides[-1] * size, strides) for s in starts[:-1]]
        case "narrow":
            dim, start = op.attributes["dim"], op.attributes["start"]
            if not isinstance(dim, int) or not isinstance(start, int):
                return [None]
            return [(base + start * strides[dim] * size, strides)]
        case "unflatten":
            width = values[op.outputs[0]].shape[2]
            return [(base, (strides[0], width * strides[1], strides[1]))]
        case "flatten":
            heads, width = source.shape[1:]
            adjoin = heads <= 1 or strides[1] == width * strides[2]
            return [(base, (strides[0], strides[2])) if adjoin else None]
        case _:
            return [None] * len(op.outputs)
