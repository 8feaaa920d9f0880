"""The invariants of whole programs in progress, each a generator of violations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache

from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.graph import RESHARD
from tscompile.ir.placement import by_replica, label
from tskernels.ops import OPS
from tskernels.schema import OpKind, TensorType
from tsruntime.artifact.schema import ArenaStorage, CacheStorage, WeightStorage, part_shape

_VIEWS = frozenset(name for name, op in OPS.items() if op.schema.kind is OpKind.VIEW)


def values_are_defined_once_and_before_use(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """Every input is bound or an earlier op's output, and no name is given twice."""
    values = program.values
    produced = {name for node in program.nodes for name in node.outputs}
    known: set[str | None] = {n for n, v in values.items() if v.is_bound and n not in produced}
    known.add(None)  # the absent input
    for node in program.nodes:
        if not known.issuperset(node.inputs):
            missing = next(name for name in node.inputs if name not in known)
            yield f"{node.op} in {node.module} reads {missing}, which is not defined yet"
        for name in node.outputs:
            if name in known:
                yield f"{name} is defined twice"
            if name not in values:
                yield f"{name} has no type"
            known.add(name)
    if program.output not in known:
        yield f"the output {program.output} is not defined"
    for name in values.keys() - known:
        yield f"{name} has a type, but nothing defines it"


def caches_are_threaded(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A cache is read only in its newest version, so that no read can pass a write."""
    caches = {
        n: v.storage for n, v in program.values.items() if isinstance(v.storage, CacheStorage)
    }
    newest: dict[CacheStorage, str] = {}
    for node in program.nodes:
        if caches.keys().isdisjoint(node.inputs) and caches.keys().isdisjoint(node.outputs):
            continue
        for name in node.inputs:
            storage = None if name is None else caches.get(name)
            if name is None or storage is None:
                continue
            if newest.setdefault(storage, name) != name:
                yield f"{node.op} in {node.module} reads {name}, an old version of its cache"
        newest.update((caches[name], name) for name in node.outputs if name in caches)


def weights_are_as_in_the_table(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A weight's value has the type and the placements of the plan's weight: one layout for all."""
    for name, value in program.values.items():
        if isinstance(value.storage, WeightStorage):
            weight = draft.weights.get(value.storage.weight)
            if weight is None:
                yield f"{name} is the weight {value.storage.weight}, which the plan lacks"
            elif (weight.type, weight.placements) != (value.type, value.placements):
                yield f"{name} differs from the plan's weight of that name"


def output_is_whole(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """The logits are equal on every rank of an attention replica, each its own rows."""
    output = program.values[program.output]
    if output.placements != by_replica(draft.mesh):
        yield f"the output {output.name} is {label(draft.mesh, output.placements)}"


def nothing_is_left_to_lower(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """No reshard and no edge remains."""
    for node in program.nodes:
        if node.op == RESHARD:
            yield f"{node.outputs[0]} is still a reshard"
    if program.edges:
        yield f"the boundary of {program.edges[0].module} was never checked"


def weights_are_made_of_their_parts(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A weight's rows are those of its parts' tiles together; its other dims are theirs.

    Programs share weights: it is asked once.
    """
    if program is not draft.programs[0]:
        return
    for weight in draft.weights.values():
        if weight.constant is not None:
            if weight.type.shape != (len(weight.constant),):
                yield f"constant {weight.name} has {len(weight.constant)} values"
            continue
        tiles = [part_shape(draft.mesh, part) for part in weight.parts]
        if len(tiles) > 1 and any(part.stack is not None for part in weight.parts):
            yield f"weight {weight.name} packs a stack with other parts"
        rows = sum(tile[0] for tile in tiles)
        if any((rows, *tile[1:]) != weight.type.shape for tile in tiles):
            yield f"weight {weight.name} {list(weight.type.shape)} is not its parts {tiles}"


def storage_is_disjoint(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """No op writes bytes of the arena that a later op still reads under another name."""
    dying = _dying(program)
    live: dict[str, tuple[int, int]] = {}
    for index, node in enumerate(program.nodes):
        for name in node.outputs:
            value = program.values[name]
            if not isinstance(value.storage, ArenaStorage):
                if value.storage is None:
                    yield f"{name} has no storage"
                continue
            start, stop = _span(value, value.storage)
            if stop > program.arena_bytes:
                yield f"{name} ends at byte {stop} of an arena of {program.arena_bytes}"
            if node.op not in _VIEWS and _meets(live.values(), start, stop):
                other = next(n for n, span in live.items() if _meets((span,), start, stop))
                yield f"{name} overwrites {other} while that is still read"
            live[name] = (start, stop)
        for name in dying.get(index, ()):
            live.pop(name, None)


def _meets(spans: Iterable[tuple[int, int]], start: int, stop: int) -> bool:
    for low, high in spans:  # noqa: SIM110
        if start < high and low < stop:
            return True
    return False


def _dying(program: DraftProgram) -> dict[int, list[str]]:
    """The values that no op touches behind the one at each index."""
    last_use: dict[str | None, int] = {}
    for index, node in enumerate(program.nodes):
        last_use.update(dict.fromkeys(node.inputs, index))
        last_use.update(dict.fromkeys(node.outputs, index))
    last_use[program.output] = len(program.nodes)
    found: dict[int, list[str]] = defaultdict(list)
    for name, index in last_use.items():
        if name is not None:
            found[index].append(name)
    return found


def _span(value: DraftValue, storage: ArenaStorage) -> tuple[int, int]:
    """First byte, and the byte behind the last one, that the value touches."""
    start = storage.offset_bytes
    return start, start + _reach(value.type, storage.strides)


@lru_cache(maxsize=1024)
def _reach(type_: TensorType, strides: tuple[int, ...]) -> int:
    """Bytes from the first to the last element."""
    steps = zip(type_.shape, strides, strict=True)
    return (1 + sum((extent - 1) * stride for extent, stride in steps)) * type_.dtype.itemsize


def views_alias_their_source(draft: Draft, program: DraftProgram) -> Iterator[str]:
    """A view's bytes lie inside those of what it views."""
    for node in program.nodes:
        if node.op not in _VIEWS or node.inputs[0] is None:
            continue
        source = program.values[node.inputs[0]]
        for output in (program.values[name] for name in node.outputs):
            if not isinstance(source.storage, ArenaStorage) or not isinstance(
                output.storage, ArenaStorage
            ):
                yield f"the view {output.name} of {source.name} is not in the arena"
                continue
            low, high = _span(source, source.storage)
            start, stop = _span(output, output.storage)
            if start < low or stop > high:
                yield f"the view {output.name} reaches outside {source.name}"
