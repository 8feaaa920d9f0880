"""Two communication plans compared: a pure function to everything that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tscompile.communication.groups import likeness
from tscompile.communication.numbers import Bucket
from tscompile.communication.plan import (
    WEIGHT_KINDS,
    CacheLayout,
    CommunicationPlan,
    Entry,
    ProgramPlan,
    WeightLayout,
)
from tscompile.communication.prices import Prices
from tscompile.communication.printer import golden_text
from tscompile.diff.align import HEAD, TAIL, Aligner, Found, FoundKernels
from tscompile.diff.changes import (
    CollectiveChange,
    Diff,
    KernelChange,
    LoadChange,
    MemoryChange,
    PlacementChange,
    Setting,
    Side,
    collective_order,
    kernel_order,
    placement_order,
)
from tscompile.diff.geometry import group_label
from tscompile.diff.renames import renamed, renames
from tsruntime.artifact.schema import Mesh


def compare(before: CommunicationPlan, after: CommunicationPlan) -> Diff:
    """What differs. Modules are aligned by name, programs by bucket."""
    names = renames(before, after)
    old = renamed(before, {r.before: r.after for r in names})
    pairs = [(p, q) for p in old.programs for q in after.programs if _bucket(p) == _bucket(q)]
    aligner = Aligner(old.mesh, after.mesh, pins=not (old.unpinned or after.unpinned))
    aligned = [(p, q, *aligner.compare(p, q)) for p, q in pairs]
    old_prices, new_prices = Prices(old), Prices(after)
    diff = Diff(
        before=before.name,
        after=after.name,
        programs=tuple(q.name for _, q in pairs),
        links=(_links(old_prices), _links(new_prices)),
        held=(sum(before.memory.values()), sum(after.memory.values())),
        settings=tuple(_settings(before, after)),
        renames=names,
        collectives=_collectives(old, after, [(q, found) for _, q, found, _ in aligned]),
        loads=tuple(_loads(old, after, old_prices, new_prices)),
        kernels=_kernels([(q, kernels) for _, q, _, kernels in aligned]),
        memory=tuple(_memory(before, after)),
        placements=_placements(old, after),
    )
    return replace(diff, others=tuple(_others(diff, old, after, pairs)))


def _others(
    diff: Diff,
    old: CommunicationPlan,
    new: CommunicationPlan,
    pairs: Sequence[tuple[ProgramPlan, ProgramPlan]],
) -> Iterator[str]:
    told = {load.program for load in diff.loads}
    for change in (*diff.collectives, *diff.kernels):
        told.update(change.programs)
    same = old.mesh == new.mesh and old.unpinned == new.unpinned
    untold = [q.name for p, q in pairs if same and p != q and q.name not in told]
    yield from untold
    if diff.is_empty and not untold and golden_text(old) != golden_text(new):
        yield "the rest of the plan"


def _bucket(program: ProgramPlan) -> tuple[str, str, int, int]:
    return (program.phase, program.logits, program.tokens, program.sequences)


def _links(prices: Prices) -> tuple[str, ...]:
    return tuple(f"among {link.ranks}" for link in prices.topology.links)


def _settings(before: CommunicationPlan, after: CommunicationPlan) -> Iterator[Setting]:
    old, new = _described(before), _described(after)
    for key in dict.fromkeys((*old, *new)):
        left, right = old.get(key, ""), new.get(key, "")
        if left != right:
            yield Setting(key, left, right)


def _described(plan: CommunicationPlan) -> dict[str, str]:
    """Names and sizes of a deployment as people call them; groups by how many ranks they span."""
    target, limits, pool, mesh = plan.target, plan.limits, plan.pool, plan.mesh
    return {
        "name": plan.name,
        "architecture": plan.architecture,
        "dtype": str(plan.dtype),
        "target": f"{target.device} {target.arch}",
        "topology": target.topology,
        "world": str(mesh.world),
        **{name: str(mesh.size(axes)) for name, axes in sorted(mesh.groups.items())},
        "layers": str(len({n for cache in pool.caches for n in cache.layers})),
        "max_model_len": str(limits.max_model_len),
        "max_batch": str(limits.max_batch),
        "token_budget": str(limits.token_budget),
        "steps_in_flight": str(limits.steps_in_flight),
        "page_size": str(pool.page_size),
        "pages": str(pool.pages),
        "host_pages": str(pool.host_pages),
        "unpinned": plan.unpinned,
    }


def _loads(
    old: CommunicationPlan, new: CommunicationPlan, before: Prices, after: Prices
) -> Iterator[LoadChange]:
    left = {_bucket(p): p for p in old.programs}
    right = {_bucket(p): p for p in new.programs}
    for bucket in sorted({*left, *right}):
        p, q = left.get(bucket), right.get(bucket)
        one = None if p is None else before.program(p)
        other = None if q is None else after.program(q)
        if one != other:
            shown = p or q
            assert shown is not None
            yield LoadChange(shown.name, one, other)


def _memory(before: CommunicationPlan, after: CommunicationPlan) -> Iterator[MemoryChange]:
    old, new = before.memory, after.memory
    for kind in (*WEIGHT_KINDS, "kv", "arena"):
        left, right = old.get(kind, 0), new.get(kind, 0)
        if left != right:
            yield MemoryChange(kind, left, right)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One change of one program."""

    program: ProgramPlan
    found: Found


def _collectives(
    old: CommunicationPlan,
    new: CommunicationPlan,
    aligned: Sequence[tuple[ProgramPlan, Sequence[Found]]],
) -> tuple[CollectiveChange, ...]:
    """Changes that several programs share, but for numbers, as one."""
    groups: dict[object, list[_Seen]] = {}
    for program, changes in aligned:
        for found in changes:
            groups.setdefault(_change_key(found), []).append(_Seen(program, found))
    changes = (_collective(old.mesh, new.mesh, seen) for seen in groups.values())
    return tuple(sorted(changes, key=collective_order))


def _change_key(found: Found) -> object:
    sides = tuple(None if e is None else likeness(e) for e in (found.before, found.after))
    return (found.kind, found.module, found.to, found.positions, found.to_positions, sides)


def _collective(old: Mesh, new: Mesh, seen: Sequence[_Seen]) -> CollectiveChange:
    first = seen[0].found
    befores = [s.found.before for s in seen if s.found.before is not None]
    afters = [s.found.after for s in seen if s.found.after is not None]
    return CollectiveChange(
        first.kind,
        first.module,
        first.to,
        tuple(s.program.name for s in seen),
        tuple(Bucket(s.program.tokens, s.program.sequences) for s in seen),
        _layers(first.positions),
        _layers(first.to_positions),
        _side(old, befores) if befores else None,
        _side(new, afters) if afters else None,
    )


def _side(mesh: Mesh, entries: Sequence[Entry]) -> Side:
    first = entries[0]
    return Side(
        first.op,
        group_label(mesh, first.axes),
        str(first.dtype),
        first.note,
        tuple(entry.shape for entry in entries),
        tuple(entry.wire for entry in entries),
    )


def _layers(positions: Sequence[int]) -> tuple[int, ...]:
    return tuple(p for p in positions if p not in (HEAD, TAIL))


def _kernels(
    aligned: Sequence[tuple[ProgramPlan, Sequence[FoundKernels]]],
) -> tuple[KernelChange, ...]:
    groups: dict[FoundKernels, list[str]] = {}
    for program, changes in aligned:
        for found in changes:
            groups.setdefault(found, []).append(program.name)
    changes = (
        KernelChange(f.module, tuple(programs), _layers(f.positions), f.before, f.after)
        for f, programs in groups.items()
    )
    return tuple(sorted(changes, key=kernel_order))


def _placements(old: CommunicationPlan, new: CommunicationPlan) -> tuple[PlacementChange, ...]:
    """Aligned by name; where one name lies differently in several layers, by those, too."""
    left, right = _lying(old), _lying(new)
    several = {name for side in (left, right) for name in _repeated([name for name, _, _ in side])}
    one, other = (
        {(name, layers if name in several else ()): (layers, how) for name, layers, how in side}
        for side in (left, right)
    )
    nowhere = ((), "")
    changes = (
        PlacementChange(key[0], tuple(sorted({*old_at, *new_at})), before, after)
        for key in {**one, **other}
        for (old_at, before), (new_at, after) in [(one.get(key, nowhere), other.get(key, nowhere))]
        if before != after
    )
    return tuple(sorted(changes, key=placement_order))


def _repeated(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _lying(plan: CommunicationPlan) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, layers and placement of each weight and cache; a weight's dtype if not the plan's."""
    weights = [
        (w.name, w.layers, _dtype(plan, w) + (_cut(plan.mesh, w.cut) or "replicated"))
        for w in plan.weights
    ]
    caches = [(f"kv cache {c.name}", c.layers, _cache(plan.mesh, c)) for c in plan.pool.caches]
    return weights + caches


def _dtype(plan: CommunicationPlan, weight: WeightLayout) -> str:
    plain = weight.dtype is plan.dtype or weight.kind == "constant"
    return "" if plain else f"{weight.dtype} "


def _cut(mesh: Mesh, cut: str) -> str:
    """`Shard(0) over 16 ranks` of `0@a+b`, of each part."""
    found: list[str] = []
    for part in cut.split():
        dim, _, axes = part.partition("@")
        over = group_label(mesh, axes.split("+"))
        found.append(f"{'experts' if dim == 'stack' else f'Shard({dim})'} over {over}")
    return ", ".join(found)


def _cache(mesh: Mesh, cache: CacheLayout) -> str:
    window = "" if cache.window is None else f" window {cache.window}"
    cut = f", cut over {group_label(mesh, cache.axes)}" if cache.axes else ", replicated"
    return f"{cache.dtype} {cache.planes}x{cache.heads}x{cache.width} a token{window}{cut}"
